"""The facade: one gate for every trigger, an open door only while a message is of use, a beat that says it all."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.worker.agent import Agent
from app.worker.door import Door
from app.worker.spool import PROBE
from tests.fakes.control_plane import Answer, FakeControlPlane, Hang, Lose, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


class Consumer:
    """Stands where Celery's consumer does; the broker's side of it is tested in tests/broker.

    `busy`: what is called soon waits for `catch_up`, which runs it the wrong way round, as kombu's hub may.
    """

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.task_consumer: Any = self
        self.busy = False
        self._called: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[..., None], *args: Any) -> None:
        self._called.append(partial(call, *args))
        if not self.busy:
            self.catch_up()

    def catch_up(self) -> None:
        while self._called:
            self._called.pop()()

    def add_task_queue(self, queue: str) -> None:
        self.open.add(queue)

    def cancel_task_queue(self, queue: str) -> None:
        self.open.discard(queue)

    def consuming_from(self, queue: str) -> bool:
        return queue in self.open


class CeleryWorker:
    """As far as the door looks: `app.amqp.queues.deselect` and `consumer`."""

    def __init__(self) -> None:
        self.consumer = Consumer()
        self.deselected: list[str] = []
        self.app = self.amqp = self.queues = self

    def deselect(self, queue: str) -> None:
        self.deselected.append(queue)


def test_a_message_runs_its_share_in_the_calling_thread(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = start_agent()
    plane.give_batch(list(rows(4)))
    plane.next("heartbeat", *[Answer(503)] * 1000)  # nothing but the message says that there is work
    runtime.let_all()
    agent.run_batch("batch_1")
    assert len(plane.stored) == 4
    assert plane.called("claim")[0].body["batch_id"] == "batch_1"


def test_a_message_that_comes_twice_is_two_requests(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    """The second one then finds what the first one left, and is never answered with the first one's leases."""
    agent = start_agent()
    plane.no = "nothing"
    before = len(plane.called("claim"))
    for _ in range(2):
        agent.run_batch("batch_1")
    asked = [call.body["request_id"] for call in plane.called("claim")[before:]]
    assert len(asked) == len(set(asked)) >= 2


def test_a_message_for_a_full_worker_returns_at_once_without_a_claim(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(8)), shard_rows=8)
    agent = start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    claims = len(plane.called("claim"))
    agent.run_batch("batch_2")
    assert len(plane.called("claim")) == claims


def test_a_bell_that_rang_while_a_claim_was_out_is_not_lost(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.timing |= {"renew_seconds": 60.0}
    agent = start_agent()
    plane.wait(lambda: plane.called("heartbeat"))
    slow = threading.Event()
    plane.next("claim", Hang(slow))
    plane.no = "nothing"
    first = threading.Thread(target=agent.run_batch, args=("batch_0",))
    first.start()
    plane.wait(lambda: plane.called("claim"))
    agent.run_batch("batch_1")  # the permit is out: home at once
    slow.set()
    plane.wait(lambda: len(plane.called("claim")) == 2)
    first.join(5)


def test_a_heartbeats_word_brings_work_without_a_message(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    start_agent()
    runtime.let_all()
    plane.give_batch(list(rows(4)))
    plane.wait(lambda: len(plane.stored) == 4)


def test_the_next_batch_starts_while_the_last_rows_of_the_old_one_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(2)), batch_id="batch_old")
    start_agent(max_concurrent_prompts=8)
    runtime.wait(lambda: len(runtime.running) == 2)
    plane.give_batch(list(rows(4)), batch_id="batch_new")
    runtime.wait(lambda: len(runtime.started) == 6, 5)
    assert runtime.finished == []


def test_nothing_is_claimed_while_no_runtime_is_alive(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    runtime.alive = False
    plane.give_batch(list(rows(4)))
    agent = start_agent()
    plane.wait(lambda: len(plane.called("heartbeat")) > 3)
    agent.run_batch("batch_1")
    assert plane.called("claim") == []
    runtime.alive = True
    runtime.let_all()
    plane.wait(lambda: len(plane.stored) == 4)


def test_a_beat_says_phase_leases_and_runtimes(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(8)))
    start_agent()
    plane.wait(lambda: any(len(call.body["leases"]) == 2 for call in plane.called("heartbeat")))
    first, last = plane.called("heartbeat")[0].body, plane.called("heartbeat")[-1].body
    assert first["runtimes"][0]["models"] == ["fake"]
    assert (last["phase"], last["activity"], last["current_invocations"]) == ("ready", "busy", 2)
    assert (last["leases"], last["unstarted"]) == ([1, 2], [2])
    assert any((call.body["sample"] or {}).get("cpus") for call in plane.called("heartbeat"))
    assert last["runtimes"] is None  # nothing changed, and half a minute has not passed


def test_a_beat_names_the_claims_that_are_out(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    answered = threading.Event()
    plane.next("claim", Hang(answered))
    plane.give_batch(list(rows(4)))
    start_agent()
    plane.wait(lambda: any(call.body["claiming"] for call in plane.called("heartbeat")))
    (claim,) = plane.called("claim")
    assert plane.called("heartbeat")[-1].body["claiming"] == [claim.body["request_id"]]
    answered.set()
    plane.wait(
        lambda: any((call.body["leases"], call.body["claiming"]) == ([1], []) for call in plane.called("heartbeat"))
    )


def test_a_beat_says_which_answer_was_heard_last(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    plane.next("heartbeat", Answer(200, {"leases": {}, "at": 7}), Lose())
    start_agent()
    plane.wait(lambda: len(plane.called("heartbeat")) >= 3)
    assert [call.body["after"] for call in plane.called("heartbeat")[:3]] == [None, 7, 7]


def test_runtimes_are_told_at_least_every_thirty_seconds(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    """LS-06."""
    ahead = [0.0]
    start_agent(clock=lambda: time.monotonic() + ahead[0])
    plane.wait(lambda: len(plane.called("heartbeat")) > 1)
    ahead[0] = 31.0
    plane.wait(lambda: sum(call.body["runtimes"] is not None for call in plane.called("heartbeat")) > 1)


def test_a_probe_that_hangs_stretches_no_beat(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = start_agent()
    with runtime.changed:  # SteeredExecutor.probe needs no lock: hang it by its own means
        stuck = threading.Event()
        healthy = runtime.probe
        runtime.probe = lambda: (stuck.wait(10), healthy())[1]  # type: ignore[method-assign]
    agent._probes.wake()
    beats = len(plane.called("heartbeat"))
    plane.wait(lambda: len(plane.called("heartbeat")) > beats + 4)
    stuck.set()


class TestTheDoor:
    def test_is_closed_at_the_start_and_opens_when_the_worker_is_ready(self) -> None:
        door, worker = Door("gpu"), CeleryWorker()
        door.attach(worker)
        assert worker.deselected == ["gpu"]
        door.set(is_open=True)
        assert worker.consumer.open == {"gpu"}

    def test_of_a_ready_worker_stays_open(self) -> None:
        door, worker = Door("gpu"), CeleryWorker()
        door.set(is_open=True)
        door.attach(worker)
        assert worker.deselected == []

    @pytest.mark.parametrize("is_open", [True, False])
    def test_stands_as_was_said_last_though_the_consumer_is_told_in_any_order(self, is_open: bool) -> None:
        door, worker = Door("gpu"), CeleryWorker()
        door.attach(worker)
        worker.consumer.busy = True
        for _ in range(3):
            door.set(is_open=not is_open)
            door.set(is_open=is_open)
        worker.consumer.catch_up()
        assert worker.consumer.open == ({"gpu"} if is_open else set())

    def test_stands_as_was_said_when_the_broker_is_back_though_the_consumer_forgot_it(
        self, start_agent: StartAgent
    ) -> None:
        agent, worker = start_agent(), CeleryWorker()
        agent._door.attach(worker)
        assert worker.consumer.open == set()
        agent.broker_back()
        assert worker.consumer.open == {"gpu"}

    @pytest.mark.parametrize("why", ["it is full", "its runtime is down", "its disk is full", "it is set up"])
    def test_closes_while_a_message_would_be_of_no_use(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path, why: str
    ) -> None:
        agent, worker = start_agent(), CeleryWorker()
        agent._door.attach(worker)
        worker.consumer.open.add("gpu")
        in_the_way = tmp_path / "state" / "spool" / PROBE  # nothing can be written there, whoever runs this
        lacking: list[str | None] = [None]
        if why == "its runtime is down":
            runtime.alive = False
            agent._probes.wake()
        elif why == "its disk is full":
            in_the_way.mkdir()
            agent._own.spool.check()
        elif why == "it is set up":
            lacking[0] = "set-up command 7 runs"
            agent._setting_up.need(lambda: lacking[0])
        else:
            plane.give_batch(list(rows(8)), shard_rows=8)
            runtime.wait(lambda: len(runtime.running) == 4)
        beats = len(plane.called("heartbeat"))
        plane.wait(lambda: len(plane.called("heartbeat")) > beats + 1)
        assert worker.consumer.open == set()
        runtime.alive = True
        runtime.let_all()
        if in_the_way.exists():
            in_the_way.rmdir()
        lacking[0] = None
        for loop in (agent._probes, agent._sender, agent._setting_up):
            loop.wake()
        plane.wait(lambda: worker.consumer.open == {"gpu"})
