"""`/workers/poll` on a socket: it holds, wakes at once, holds one poll a worker, and costs no thread while it waits."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.api import listeners
from app.api.main import close_listeners
from app.client.errors import TryLater
from app.domain.workers import Phase
from app.schemas.polls import Poll, PollAnswer, PolledMessage
from app.schemas.workers import Heartbeat
from app.services import commands, stops
from app.services.context import Silence, Yard
from tests.hands import Hands, do_control_work
from tests.served import Served, rows

SECONDS = 20.0
WOKEN_SECONDS = 8.0
"""Well before a poll that nobody wakes would answer by itself, with what it then finds."""


@pytest.fixture
def served(served_on_sqlite: Served) -> Served:
    return served_on_sqlite


class Elsewhere(Served):
    """Another process of the same service: no bell of it rings here."""

    @property
    def yard(self) -> Yard:
        return replace(self.app.state.yard, bells=Silence())


class Polled(Hands):
    """A worker that registered, is ready, and polls."""

    def __init__(self, served: Served, pool: ThreadPoolExecutor) -> None:
        super().__init__(served, "one")
        self._pool = pool
        self.plane.heartbeat(
            self.worker_id, Heartbeat(boot_id=self.boot_id, phase=Phase.READY), timeout_seconds=SECONDS
        )

    def poll(self, *, cursor: str | None = None, wait_seconds: float = SECONDS) -> "Future[PollAnswer]":
        """Poll in another thread; gives the answer to come."""
        asked = Poll(
            worker_id=self.worker_id,
            boot_id=self.boot_id,
            phase=Phase.READY,
            cursor=cursor,
            wait_seconds=wait_seconds,
        )
        return self._pool.submit(self.plane.poll, asked)


@pytest.fixture
def one(served: Served) -> Iterator[Polled]:
    with ThreadPoolExecutor(4) as pool:
        made = Polled(served, pool)
        yield made
        close_listeners(served.app)
        made.close()


def waiting(served: Served) -> dict[str, listeners.Listener]:
    found: dict[str, listeners.Listener] = served.app.state.listeners._of_worker
    return found


def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def kinds(answer: PollAnswer) -> list[str]:
    return [message.kind for message in answer.messages]


def submitted(served: Served) -> str:
    """A batch that was created and that nobody validated yet."""
    sdk = served.client(max_retries=0)
    file = sdk.files.create(file=("in.jsonl", rows(4)), purpose="batch")
    batch = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    sdk.close()
    return batch.id


def test_a_poll_with_nothing_to_say_is_held_as_long_as_it_asked(served: Served, one: Polled) -> None:
    began = time.monotonic()
    answer = one.poll(wait_seconds=0.5).result(SECONDS)
    assert kinds(answer) == []
    assert 0.5 <= time.monotonic() - began < 5
    assert waiting(served) == {}


def test_work_that_a_bell_of_this_process_rings_for_wakes_it_at_once(
    served: Served, one: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LOOK_SECONDS", 60.0)  # no look but by a bell
    served.app.state.listeners.ring()  # which ends the look under way
    poll = one.poll()
    until(lambda: waiting(served))
    batch_id = submitted(served)
    do_control_work(served)
    began = time.monotonic()
    assert poll.result(WOKEN_SECONDS).messages == [PolledMessage(kind="work", batch_id=batch_id)]
    assert time.monotonic() - began < 1


def test_what_other_processes_did_is_seen_within_a_look(served: Served, one: Polled) -> None:
    poll = one.poll()
    until(lambda: waiting(served))
    submitted(served)
    do_control_work(Elsewhere(served.url, served.app))
    began = time.monotonic()
    assert kinds(poll.result(WOKEN_SECONDS)) == ["work"]
    assert time.monotonic() - began < listeners.LOOK_SECONDS + 2

    poll = one.poll(cursor=poll.result().cursor)
    until(lambda: waiting(served))
    commands.drain(served.yard, served.operator(), "one")
    assert kinds(poll.result(WOKEN_SECONDS)) == ["drain"]


def test_a_drain_over_http_wakes_it_and_is_shown(served: Served, one: Polled) -> None:
    poll = one.poll()
    until(lambda: waiting(served))
    with served.http() as admin:
        answer = admin.post("/v1/workers/one/drain")
        assert answer.json()["drain_requested_at"]
        assert answer.json()["no_lease"] == "draining"
        assert admin.post("/v1/workers/nobody/drain").status_code == 404
    assert kinds(poll.result(WOKEN_SECONDS)) == ["drain"]
    with served.http(served.key("worker", "submit")) as user:
        assert user.post("/v1/workers/one/reset").status_code == 403


def test_a_batch_that_stops_wakes_who_holds_it(served: Served, one: Polled) -> None:
    batch_id = submitted(served)
    do_control_work(served)
    assert one.claim()[1]
    poll = one.poll()
    until(lambda: waiting(served))
    stops.cancel(served.yard, served.operator(), batch_id)
    assert poll.result(WOKEN_SECONDS).messages == [PolledMessage(kind="stop", batch_id=batch_id)]


def test_a_second_poll_of_a_worker_ends_the_first(served: Served, one: Polled) -> None:
    first = one.poll(cursor=None)
    until(lambda: waiting(served))
    second = one.poll()
    assert kinds(first.result(WOKEN_SECONDS)) == []
    assert len(waiting(served)) == 1
    commands.reset(served.yard, served.operator(), "one")
    assert kinds(second.result(WOKEN_SECONDS)) == ["reset_backoff"]


def test_the_end_of_the_process_answers_those_who_wait_and_lets_no_more_wait(served: Served, one: Polled) -> None:
    poll = one.poll()
    until(lambda: waiting(served))
    close_listeners(served.app)
    assert kinds(poll.result(WOKEN_SECONDS)) == []
    with pytest.raises(TryLater) as refused:
        one.poll().result(SECONDS)
    assert (refused.value.status, refused.value.code) == (503, "unavailable")


def test_polls_that_wait_hold_no_thread_and_only_as_many_are_woken_as_could_start(
    served: Served, one: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred workers wait as the loop sees them; one shard rings for one of them and not for a hundred."""
    found: listeners.Listeners = served.app.state.listeners
    threads = threading.active_count()
    rows = {f"wrk_{n}": listeners.Listener(f"wrk_{n}", "gpu", listeners.Told(), wants_work=True) for n in range(100)}
    woken: list[str] = []
    monkeypatch.setattr(listeners.Listener, "wake", lambda self: woken.append(self.worker_id))
    work = listeners.PoolNews((("batch_1", 1),), wanted=3)
    for _ in range(3):
        found._ring_pool(rows, work)
    assert woken == [f"wrk_{n}" for n in range(9)]
    assert threading.active_count() == threads


def test_the_same_work_wakes_nobody_twice_within_five_seconds_unless_it_is_rung_again(served: Served) -> None:
    found: listeners.Listeners = served.app.state.listeners
    listener = listeners.Listener("wrk_1", "gpu", listeners.Told(), wants_work=True)
    work = listeners.PoolNews((("batch_1", 1),), wanted=1)
    for rung, wakes in ((1, True), (1, False), (2, True)):
        found._ring_pool({"wrk_1": listener}, replace(work, mark=(("batch_1", rung),)))
        assert listener._woken.is_set() is wakes
        listener._woken.clear()
