"""Fetching a model: once for all who need it, one at a time for a runtime, and never for nobody."""

import threading
import time
from collections.abc import Iterator

import pytest

from app.domain.pulls import Pull, PullStatus
from app.domain.runtimes import RuntimeFacts
from app.worker.puller import FAILED_SECONDS, PullEnd, Puller
from app.worker.runtimes import Runtimes
from executors.base import BaseExecutor, PullFailed
from tests.fakes.pulling_executor import PullingExecutor
from tests.fakes.steered_executor import WAIT_SECONDS, SteeredExecutor

CHAT = "/v1/chat/completions"
THERE = PullEnd(there=True)


class Desk:
    """Who waits here, and what they were told."""

    def __init__(self, *executors: BaseExecutor, pull_models: bool = True) -> None:
        self.runtimes = Runtimes(executors, time.monotonic, pull_models=pull_models)
        self.runtimes.probe()
        self.changed = threading.Condition()
        self.now = 0.0
        self.said: list[Pull] = []
        self.ends: dict[str, PullEnd] = {}
        self.active: list[bool] = []
        self.puller = Puller(self.runtimes, lambda: self.now, report=self._say, on_change=self._change)

    def need(self, model: str, who: str, endpoint: str = CHAT) -> bool:
        def then(end: PullEnd) -> None:
            with self.changed:
                self.ends[who] = end
                self.changed.notify_all()

        return self.puller.need(model, endpoint, who, then)

    def told(self, *names: str) -> list[PullEnd]:
        """Wait until each of them was told."""
        with self.changed:
            assert self.changed.wait_for(lambda: all(name in self.ends for name in names), WAIT_SECONDS), self.ends
            return [self.ends[name] for name in names]

    def quiet(self) -> None:
        """Wait until nothing is fetched."""
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.active) and not self.active[-1], WAIT_SECONDS)

    def statuses(self, model: str) -> list[PullStatus]:
        return list(dict.fromkeys(pull.status for pull in self.said if pull.model == model))

    def _say(self, pull: Pull) -> None:
        with self.changed:
            self.said.append(pull)
            self.changed.notify_all()

    def _change(self) -> None:
        with self.changed:
            self.active.append(self.puller.is_active)
            self.changed.notify_all()


@pytest.fixture
def runtime() -> Iterator[PullingExecutor]:
    found = PullingExecutor()
    yield found
    found.let_all()


@pytest.fixture
def desk(runtime: PullingExecutor) -> Iterator[Desk]:
    found = Desk(runtime)
    yield found
    found.puller.close()
    if found.active:
        found.quiet()


def test_all_who_need_a_model_wait_for_one_pull_and_then_have_it(desk: Desk, runtime: PullingExecutor) -> None:
    assert desk.need("m", "first")
    assert desk.need("m", "second")
    runtime.step((10, 100), (100, 100), None)
    assert desk.told("first", "second") == [THERE, THERE]
    assert runtime.pulling == ["m"]
    assert not desk.need("m", "third")  # it is there
    assert [(pull.completed, pull.total) for pull in desk.said] == [(0, 0), (10, 100), (100, 100), (100, 100)]
    assert desk.statuses("m") == [PullStatus.PULLING, PullStatus.PULLED]


def test_bytes_never_go_backwards_whatever_the_runtime_says(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    runtime.step((50, 100), (20, 100), (60, 80), None)
    desk.told("one")
    assert [(pull.completed, pull.total) for pull in desk.said[1:]] == [(50, 100), (50, 100), (60, 100), (60, 100)]


def test_one_runtime_fetches_one_model_at_a_time(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    desk.need("n", "two")
    runtime.wait(lambda: runtime.pulling == ["m"])
    runtime.step(None)
    desk.told("one")
    runtime.wait(lambda: runtime.pulling == ["m", "n"])
    runtime.step(None)
    desk.told("two")


def test_two_runtimes_fetch_side_by_side(runtime: PullingExecutor) -> None:
    other = PullingExecutor()
    desk = Desk(runtime, other)
    desk.need("m", "one")
    runtime.wait(lambda: runtime.pulling == ["m"])
    runtime.alive = False
    desk.runtimes.probe()
    desk.need("m", "two")  # the first runtime has gone, its pull hangs
    other.wait(lambda: other.pulling == ["m"])
    other.step(None)
    assert desk.told("two") == [THERE]
    desk.puller.close()


def test_another_name_of_a_model_that_came_meanwhile_is_no_second_pull(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    desk.need("m:latest", "two")
    runtime.step(None)
    assert desk.told("one", "two") == [THERE, THERE]
    assert runtime.pulling == ["m"]


def test_a_failure_is_told_with_the_runtimes_words_and_stands_for_a_while(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    runtime.step(PullFailed("file does not exist"))
    assert desk.told("one") == [PullEnd(there=False, reason="file does not exist")]
    assert desk.said[-1].error == "file does not exist"
    assert desk.need("m", "two")
    assert desk.told("two") == desk.told("one")
    assert runtime.pulling == ["m"]
    desk.now += FAILED_SECONDS
    desk.need("m", "three")
    runtime.step(None)
    assert desk.told("three") == [THERE]


def test_all_who_wait_are_told_of_one_failure(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    runtime.wait(lambda: runtime.pulling)
    desk.need("m", "two")
    runtime.step(PullFailed("file does not exist"))
    desk.told("one", "two")
    assert runtime.pulling == ["m"]


def test_who_cannot_be_told_keeps_nobody_else_from_the_runtimes_next_pulls(
    desk: Desk, runtime: PullingExecutor
) -> None:
    def break_down(_end: PullEnd) -> None:
        raise OSError("a bug")

    assert desk.puller.need("m", CHAT, "broken", break_down)
    desk.need("m", "one")
    desk.need("n", "two")
    runtime.step(None, None)
    assert desk.told("one", "two") == [THERE, THERE]


@pytest.mark.parametrize("bug", [OSError("disk full"), PullFailed("")])
def test_whatever_an_executor_raises_is_a_failure_with_words(
    desk: Desk, runtime: PullingExecutor, bug: Exception
) -> None:
    desk.need("m", "one")
    runtime.step(bug)
    (end,) = desk.told("one")
    assert not end.there
    assert end.reason


def test_a_runtime_that_went_down_under_a_pull_is_no_fault_of_the_model(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    runtime.wait(lambda: runtime.pulling)
    runtime.alive = False
    runtime.step(PullFailed("connection refused"))
    (end,) = desk.told("one")
    assert end.runtime_gone
    assert "connection refused" in end.reason


def test_a_model_that_comes_under_another_name_is_a_failure(desk: Desk, runtime: PullingExecutor) -> None:
    class Renaming(PullingExecutor):
        def probe(self) -> RuntimeFacts:
            facts = super().probe()
            return facts if not self.models[1:] else RuntimeFacts("r", "k", alive=True, endpoints=facts.endpoints)

    renaming = Renaming()
    odd = Desk(renaming)
    odd.need("m", "one")
    renaming.step(None)
    (end,) = odd.told("one")
    assert "does not list it" in end.reason


def test_a_pull_that_nobody_waits_for_is_cut_and_one_that_somebody_does_goes_on(
    desk: Desk, runtime: PullingExecutor
) -> None:
    desk.need("m", "one")
    desk.need("m", "two")
    runtime.wait(lambda: runtime.pulling)
    desk.puller.forget("one")
    assert runtime.cut_pulls == []
    desk.puller.forget("two")
    runtime.wait(lambda: runtime.cut_pulls == ["m"])
    desk.quiet()
    assert desk.ends == {}
    assert desk.statuses("m") == [PullStatus.PULLING, PullStatus.CANCELLED]
    desk.need("m", "three")  # it begins anew
    runtime.step(None)
    assert desk.told("three") == [THERE]


def test_one_that_waits_its_turn_is_never_begun_for_nobody(desk: Desk, runtime: PullingExecutor) -> None:
    desk.need("m", "one")
    desk.need("n", "two")
    desk.puller.forget("two")
    runtime.step(None)
    desk.told("one")
    desk.quiet()
    assert runtime.pulling == ["m"]
    assert desk.statuses("n") == []


def test_nobody_fetches_unless_the_worker_may_and_its_runtime_can() -> None:
    assert not Desk(PullingExecutor(), pull_models=False).need("m", "one")
    assert not Desk(SteeredExecutor()).need("m", "one")
    assert not Desk(PullingExecutor()).need("m", "one", "/v1/embeddings")
    gone = PullingExecutor()
    gone.alive = False
    assert not Desk(gone).need("m", "one")


def test_the_control_plane_hears_which_runtime_fetches(runtime: PullingExecutor) -> None:
    for may in (True, False):
        told = {info.kind: info.pulls for info in Desk(runtime, SteeredExecutor(), pull_models=may).runtimes.infos()}
        assert told == {"pulling": may, "steered": False}
