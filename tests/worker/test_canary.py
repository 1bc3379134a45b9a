"""The first rows of a batch on a worker run alone until one is completed (B-14, decision 22)."""

import threading
from collections.abc import Callable

from app.domain.rows import Blame, Reply, RowError, RowErrorCode
from app.schemas.segments import FirstRows
from app.worker.canary import Canary
from tests.fakes.control_plane import FakeControlPlane, Hang, rows
from tests.fakes.steered_executor import SteeredExecutor
from tests.worker.conftest import StartAgent
from tests.worker.units import queue_of, unit

KIND = "400 invalid_request_error"
OK = Reply(status=200, body=b"{}")


def refused(kind: str = "invalid_request_error", message: str = "no") -> Reply:
    body = b'{"error":{"type":"%s","message":"%s"}}' % (kind.encode(), message.encode())
    return Reply(status=400, body=body)


def fail(runtime: SteeredExecutor, numbers: range, reply: Callable[[], Reply] = refused) -> None:
    runtime.answers |= dict.fromkeys(numbers, reply)


class Owner:
    """Hears the words on the first rows, and answers `wait`, `stop` or `go on`."""

    def __init__(self, plane: FakeControlPlane, answer: str = "wait") -> None:
        self.words: list[FirstRows] = []
        self.answer = answer
        self._plane = plane
        plane.hear = self._hear

    def _hear(self, word: FirstRows) -> bool:
        self.words.append(word)
        if self.answer == "stop":
            self._plane.shards.clear()
            for lease in self._plane.leases.values():
                lease.state = "stopping" if lease.state == "held" else lease.state
        return self.answer == "go on"


class TestWhileNoneIsCompleted:
    def test_no_more_than_those_run(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        owner = Owner(plane)
        plane.give_batch(list(rows(16)), shard_rows=16, canary_rows=3)
        start_agent(max_concurrent_prompts=8)
        runtime.wait(lambda: len(runtime.running) == 3)
        beats = len(plane.called("heartbeat"))
        plane.wait(lambda: len(plane.called("heartbeat")) > beats + 1)  # it has had the time to start others
        assert sorted(runtime.started) == [0, 1, 2]
        runtime.let(1)
        runtime.wait(lambda: len(runtime.running) == 8)
        runtime.let_all()
        plane.wait(lambda: plane.states() == {1: "reported"})
        assert owner.words == []

    def test_a_row_that_failed_gives_its_place_to_no_other(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        fail(runtime, range(2))
        plane.give_batch(list(rows(16)), shard_rows=16, canary_rows=3)
        start_agent(max_concurrent_prompts=8)
        runtime.wait(lambda: len(runtime.running) == 3)
        runtime.let(0, 1)
        plane.wait(lambda: set(plane.stored) == {0, 1})
        assert sorted(runtime.started) == [0, 1, 2]
        runtime.let_all()
        plane.wait(lambda: plane.states() == {1: "reported"})
        assert len(plane.stored) == 16

    def test_a_row_that_its_runtime_refused_for_now_runs_again_and_nothing_stands_still(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        answers = iter([Reply(status=429, body=b"{}", blame=Blame.RUNTIME)] * 2)
        fail(runtime, range(2), lambda: next(answers, OK))
        plane.give_batch(list(rows(8)), shard_rows=8, canary_rows=2)
        runtime.let_all()
        start_agent()
        plane.wait(lambda: plane.states() == {1: "reported"})
        assert len(plane.stored) == 8


class TestThatAllFailAlike:
    def test_is_told_once_they_are_stored_and_stops_the_batch(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        fail(runtime, range(100))
        plane.segment_seconds = 30.0
        owner = Owner(plane, "stop")
        plane.give_batch(list(rows(100)), shard_rows=50, canary_rows=5)
        runtime.let_all()
        agent = start_agent(max_concurrent_prompts=8)
        plane.wait(lambda: plane.leases and set(plane.states().values()) == {"released"})
        assert len(runtime.started) == 5
        assert set(plane.stored) == set(range(5))
        assert [(word.kind, word.rows, word.message) for word in owner.words] == [(KIND, 5, "no")]
        assert agent._shares.wait_none(5)

    def test_is_told_again_until_there_is_an_answer_and_starts_no_row_meanwhile(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        fail(runtime, range(5))
        owner = Owner(plane)
        plane.give_batch(list(rows(20)), shard_rows=20, canary_rows=5)
        runtime.let_all()
        start_agent(max_concurrent_prompts=8)
        plane.wait(lambda: len(owner.words) >= 3)
        assert len(runtime.started) == 5
        with plane.changed:
            owner.answer = "go on"
        plane.wait(lambda: plane.states() == {1: "reported"})
        assert len(plane.stored) == 20


def test_that_fail_each_in_its_own_way_let_all_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    kinds = iter(["one", "two"])
    fail(runtime, range(2), lambda: refused(next(kinds)))
    owner = Owner(plane)
    plane.give_batch(list(rows(12)), shard_rows=12, canary_rows=4)
    runtime.let_all()
    start_agent()
    plane.wait(lambda: plane.states() == {1: "reported"})
    assert len(plane.stored) == 12
    assert [word.kind for word in owner.words] == [None]


def test_a_claims_answer_that_a_row_was_completed_elsewhere_lets_all_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(8)), shard_rows=2, canary_rows=1)
    first, *others = plane.shards
    plane.shards.clear()
    plane.shards.append(first)
    completed_elsewhere = threading.Event()
    plane.next("claim", None, Hang(completed_elsewhere))
    start_agent(max_concurrent_prompts=8)
    plane.wait(lambda: len(plane.called("claim")) == 2)
    runtime.wait(lambda: len(runtime.running) == 1)
    with plane.changed:
        plane.batch["canary_rows"] = 0
        plane.shards.extend(others)
    completed_elsewhere.set()
    runtime.wait(lambda: len(runtime.running) == 8)


class TestTheWord:
    def test_counts_answers_only_for_a_row_that_the_runtime_judged(self) -> None:
        for reply in (
            Reply(status=500, body=b"{}", blame=Blame.UNCLEAR),
            Reply(error=RowError(RowErrorCode.REQUEST_TIMEOUT, "too slow")),
            Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, "gone"), blame=Blame.RUNTIME),
        ):
            canary = Canary(queue_of(), 2)
            canary.kept(0, reply)
            assert canary.word is not None
            assert canary.word.kind is None

    def test_is_nothing_after_a_row_was_completed(self) -> None:
        canary = Canary(queue_of(), 2)
        for number, reply in enumerate([refused(), OK, refused(), refused(), refused()]):
            canary.kept(number, reply)
        assert canary.word is None

    def test_names_the_row_that_failed_first(self) -> None:
        canary = Canary(queue_of(), 2)
        canary.kept(7, refused(message="first"))
        canary.kept(3, refused(message="second"))
        assert canary.word is not None
        assert (canary.word.row, canary.word.message, canary.word.rows) == (7, "first", 2)


class TestTheBoundOfAQueue:
    def test_counts_the_rows_that_share_a_request(self) -> None:
        queue = queue_of()
        queue.put([unit(number) for number in range(8)])
        queue.bound(3)
        run = queue.take()
        assert run is not None
        assert len(queue.take_more(run, 8, lambda _unit: True)) == 2
        assert queue.take() is None
        queue.done(run)
        run = queue.take()
        assert run is not None
        assert len(queue.take_more(run, 8, lambda _unit: True)) == 2

    def test_is_lifted_for_those_who_wait(self) -> None:
        queue = queue_of()
        queue.put([unit(number) for number in range(4)])
        queue.bound(0)
        assert queue.is_shut
        assert queue.take() is None
        queue.bound(None)
        assert queue.take() is not None
