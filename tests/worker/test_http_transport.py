"""A worker without a broker: the same agent, rung by polls through the same gate."""

import threading
from collections.abc import Callable

import pytest

from app.domain.workers import ByeReason, Transport
from app.worker.agent import Agent
from app.worker.polling import Polling
from tests.e2e.yard import until
from tests.fakes.control_plane import Answer, FakeControlPlane, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


@pytest.fixture(autouse=True)
def _polls_alone(plane: FakeControlPlane) -> None:
    """After the first, no heartbeat comes to say that there is work."""
    plane.timing |= {"renew_seconds": 60.0, "grace_seconds": 100.0, "toleration_seconds": 400.0}


@pytest.fixture
def start(start_agent: StartAgent) -> StartAgent:
    def begin(**settings: object) -> Agent:
        return start_agent(transport=Transport.HTTP, **({"wait_max_seconds": 5.0} | settings))

    return begin


def beaten(plane: FakeControlPlane, agent: Agent) -> None:
    """Have a heartbeat answered, and its answer taken."""
    for _ in range(2):
        beats = len(plane.called("heartbeat"))
        agent._heartbeat.wake()
        plane.wait(lambda known=beats: len(plane.called("heartbeat")) > known)


def has_turned(polling: Polling) -> bool:
    """Whether its last turn began after it was woken, and no poll is under way that an earlier turn began."""
    under_way = any(getattr(thread, "_done", None) == polling.wake for thread in threading.enumerate())
    return not polling._awake.is_set() and not under_way


def polls_once_quiet(plane: FakeControlPlane, agent: Agent) -> int:
    """How many polls came, when no earlier decision can bring another one."""
    agent._polling.wake()
    until(lambda: has_turned(agent._polling), "no poll is under way")
    return len(plane.called("poll"))


def test_a_poll_rings_and_the_worker_claims(
    plane: FakeControlPlane, runtime: SteeredExecutor, start: StartAgent
) -> None:
    start()
    plane.wait(lambda: plane.called("poll"))
    runtime.let_all()
    plane.give_batch(list(rows(8)))
    plane.wait(lambda: len(plane.stored) == 8)
    first = plane.called("poll")[0].body
    assert (first["phase"], first["free"], first["cursor"]) == ("ready", 1, None)
    assert plane.called("register")[0].body["transport"] == "http"


def test_a_worker_that_is_full_does_not_poll_and_does_when_it_has_room_again(
    plane: FakeControlPlane, runtime: SteeredExecutor, start: StartAgent
) -> None:
    plane.give_batch(list(rows(8)), shard_rows=8)
    agent = start(wait_max_seconds=0.05)
    runtime.wait(lambda: len(runtime.running) == 4)
    plane.wait(lambda: not agent._gate.has_room)
    beaten(plane, agent)
    polls = polls_once_quiet(plane, agent)
    agent._polling.wake()
    plane.never(lambda: len(plane.called("poll")) > polls, after=lambda: has_turned(agent._polling))
    runtime.let_all()
    plane.wait(lambda: len(plane.called("poll")) > polls)


def test_max_invocations_bounds_the_permits(plane: FakeControlPlane, start: StartAgent) -> None:
    agent = start(slots_batches=3, max_invocations=2)
    plane.wait(lambda: plane.called("poll"))
    assert plane.called("poll")[0].body["free"] == 2
    agent._gate.try_enter()
    agent._gate.try_enter()
    assert not agent._gate.has_room


def test_a_drain_comes_by_poll_and_its_bye_says_so(plane: FakeControlPlane, start: StartAgent) -> None:
    agent = start()
    plane.wait(lambda: plane.called("poll"))
    with plane.changed:
        plane.drain = True
        plane.changed.notify_all()
    assert agent.join(10)
    assert plane.called("bye")[0].body["reason"] == ByeReason.DRAIN


def test_a_claim_that_is_refused_because_of_a_drain_begins_it(plane: FakeControlPlane, start: StartAgent) -> None:
    agent = start()
    plane.no = "draining"
    agent.run_batch("batch_1")
    assert agent.join(10)
    assert plane.called("bye")[0].body["reason"] == ByeReason.DRAIN


def test_the_answer_of_a_heartbeat_ends_a_long_back_off_once(plane: FakeControlPlane, start: StartAgent) -> None:
    plane.next("poll", Answer(503), Answer(503))
    agent = start(retry_min_seconds=600, retry_max_seconds=600)
    plane.wait(lambda: plane.called("poll"))
    beaten(plane, agent)
    assert len(plane.called("poll")) == 1
    plane.reset = "mark-1"
    agent._heartbeat.wake()
    plane.wait(lambda: len(plane.called("poll")) == 2)
    until(lambda: agent._polling._not_before > 0, "it has read that the second poll failed, too")
    beaten(plane, agent)  # which says the same mark again
    plane.never(lambda: len(plane.called("poll")) > 2, after=lambda: has_turned(agent._polling))


def test_a_leaving_worker_polls_no_more_and_waits_for_no_answer(plane: FakeControlPlane, start: StartAgent) -> None:
    agent = start(wait_max_seconds=10.0)
    plane.wait(lambda: plane.called("poll"))
    agent.on_signal()
    assert agent.join(8)
    assert len(plane.called("poll")) == 1


def test_a_celery_worker_polls_while_its_broker_is_away_and_no_longer(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = start_agent(wait_max_seconds=0.5)
    beaten(plane, agent)
    assert plane.called("poll") == []
    runtime.let_all()
    agent.broker_away()
    plane.wait(lambda: plane.called("poll"))
    plane.give_batch(list(rows(4)))
    plane.wait(lambda: len(plane.stored) == 4)
    agent.broker_back()
    beaten(plane, agent)
    polls = polls_once_quiet(plane, agent)
    agent._polling.share_ended()
    plane.never(lambda: len(plane.called("poll")) > polls, after=lambda: has_turned(agent._polling))


def test_a_hello_that_was_perhaps_taken_is_taken_back_by_a_bye(plane: FakeControlPlane, start: StartAgent) -> None:
    first = start()
    first.on_signal()
    assert first.join(10)
    plane.next("register", *[Answer(503)] * 10)
    with pytest.raises(SystemExit):
        start()
    plane.wait(lambda: len(plane.called("bye")) == 2)
    assert plane.called("bye")[1].body["reason"] == ByeReason.HELLO_FAILED
