"""Which runtime takes a row, and what a runtime that died means for it."""

import time
from dataclasses import replace
from typing import Any

import pytest
import structlog

from app.domain.rows import Blame, Reply, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, ServedModel
from app.schemas.workers import MAX_MODEL_NAME, MAX_MODELS, MAX_WORKER_TEXT, Heartbeat
from app.worker.breaker import FAILURES, LONGEST_PAUSE_SECONDS
from app.worker.probes import ALIVE_SECONDS, TROUBLED_SECONDS, Probes
from app.worker.row_queue import RowQueue
from app.worker.runtimes import RuntimeGone, Runtimes
from app.worker.verdicts import Verdict
from executors.base import BaseExecutor
from executors.cancellation import CancelToken
from executors.fakes import FakeExecutor
from executors.settings import ExecutorSettings
from tests.fakes.steered_executor import SteeredExecutor
from tests.worker.units import unit


def probed(*executors: BaseExecutor) -> Runtimes:
    runtimes = Runtimes(executors, time.monotonic)
    runtimes.probe()
    return runtimes


def run(runtimes: Runtimes, model: str) -> Reply:
    queue = RowQueue(runtimes)
    queue.put([unit(0, model=model)])
    taken = queue.take()
    assert taken is not None
    return runtimes.execute(taken, timeout=5, cancelled=CancelToken())


def test_a_row_goes_to_the_runtime_that_serves_its_model() -> None:
    runtimes = probed(
        FakeExecutor(ExecutorSettings(), "fake:?models=a"), FakeExecutor(ExecutorSettings(), "fake:?models=b")
    )
    assert run(runtimes, "a").ok
    assert run(runtimes, "b").ok


def test_a_model_that_vanished_fails_its_row_only() -> None:
    reply = run(probed(FakeExecutor(ExecutorSettings(), "fake:?models=a")), "b")
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.MODEL_NOT_FOUND


def test_a_model_that_a_dead_runtime_may_have_is_for_another_worker_to_find() -> None:
    dead = SteeredExecutor()
    dead.alive = False
    with pytest.raises(RuntimeGone):
        run(probed(FakeExecutor(ExecutorSettings(), "fake:?models=a"), dead), "b")


def test_a_row_of_a_dead_runtime_waits_for_it() -> None:
    executor = SteeredExecutor()
    runtimes = probed(executor)
    queue = RowQueue(runtimes)
    queue.put([unit(0)])
    executor.alive = False
    runtimes.probe()
    assert queue.take() is None
    executor.alive = True
    runtimes.probe()
    assert queue.take() is not None


def test_a_probe_that_raises_is_a_dead_runtime_with_a_reason() -> None:
    class Broken(SteeredExecutor):
        def probe(self) -> RuntimeFacts:
            raise OSError("driver gone")

    runtimes = probed(Broken())
    assert not runtimes.any_alive
    assert "driver gone" in (runtimes.infos()[0].reason or "")


def test_slots_are_known_only_when_every_live_runtime_tells() -> None:
    assert probed(SteeredExecutor(slots=4), SteeredExecutor(slots=8)).known_slots == 12
    assert probed(SteeredExecutor(slots=4), SteeredExecutor()).known_slots is None


def test_a_runtime_in_trouble_is_looked_at_more_often_and_the_others_are_not() -> None:
    now = [0.0]
    looks: list[str] = []

    class Counted(SteeredExecutor):
        def probe(self) -> RuntimeFacts:
            looks.append("healthy")
            return super().probe()

    sick, told = SteeredExecutor(), list[str]()
    runtimes = probed(sick, Counted())
    probes = Probes(runtimes, lambda: now[0], on_change=lambda: told.append("change"), on_looked=lambda _: None)
    looks.clear()
    assert probes.turn() == ALIVE_SECONDS
    sick.alive = False
    assert probes.turn() == TROUBLED_SECONDS
    for _ in range(5):
        assert probes.turn() == TROUBLED_SECONDS
    assert (looks, told) == (["healthy"] * 2, ["change"])
    now[0] += ALIVE_SECONDS
    sick.alive = True
    assert probes.turn() == ALIVE_SECONDS
    assert (looks, told) == (["healthy"] * 3, ["change"] * 2)


def test_a_request_for_the_models_is_done_by_a_look_at_all_of_them_and_answered_once() -> None:
    done: list[object] = []

    class Keeping(SteeredExecutor):
        """It keeps its list, as one does that asks for it now and then."""

        def forget(self) -> None:
            done.append("forgot")

        def probe(self) -> RuntimeFacts:
            done.append("looked")
            return super().probe()

    class Broken(SteeredExecutor):
        def forget(self) -> None:
            raise ValueError

    sick = Broken()
    runtimes = probed(Keeping(), sick)
    sick.alive = False
    probes = Probes(runtimes, lambda: 0.0, on_change=lambda: done.append("change"), on_looked=done.append)
    probes.turn()
    done.clear()
    probes.ask(7)
    probes.ask(7)
    probes.turn()
    probes.ask(7)
    probes.turn()
    assert done == ["forgot", "looked", 7], "the one in trouble is looked at every second, the others are not"
    probes.ask(8)
    probes.turn()
    assert done[-1] == 8


def test_a_runtime_that_lists_too_much_is_told_as_far_as_the_wire_takes_it() -> None:
    class Crowded(SteeredExecutor):
        def probe(self) -> RuntimeFacts:
            models = tuple(ServedModel(f"m{n}") for n in range(MAX_MODELS + 5))
            return replace(super().probe(), models=(ServedModel("x" * (MAX_MODEL_NAME + 1)), *models))

    (info,) = probed(Crowded()).infos()
    assert len(info.models) == MAX_MODELS
    assert info.models[0] == "m0"


@pytest.mark.parametrize(
    ("characters", "told"),
    [
        (10, [MAX_MODELS, MAX_MODELS, 0]),
        (200, [MAX_WORKER_TEXT // 200, 0, 0]),
    ],
)
def test_runtimes_that_list_too_much_together_are_told_as_far_as_the_wire_takes_it(
    characters: int, told: list[int]
) -> None:
    class Crowded(SteeredExecutor):
        def probe(self) -> RuntimeFacts:
            names = (f"{n:0{characters}}" for n in range(MAX_MODELS))
            return replace(super().probe(), models=tuple(map(ServedModel, names)), slots=10**400)

    infos = probed(Crowded(), Crowded(), Crowded()).infos()
    assert [len(info.models) for info in infos] == told
    beat = Heartbeat(boot_id="b", runtimes=infos)
    assert Heartbeat.model_validate_json(beat.model_dump_json()) == beat


def test_a_row_that_no_runtime_saw_says_nothing_of_a_broken_one() -> None:
    """Else a runtime that hangs would look alive whenever a row is refused before it is sent."""
    now = [0.0]
    runtimes = Runtimes([SteeredExecutor()], lambda: now[0])
    runtimes.probe()
    place = runtimes.places[0]
    for _ in range(FAILURES):
        place.breaker.failed("it hangs")
    now[0] += LONGEST_PAUSE_SECONDS
    queue = RowQueue(runtimes)
    queue.put([unit(0), unit(1)])
    trial = queue.take()
    assert trial is not None
    assert trial.is_trial
    refused = Reply(error=RowError(RowErrorCode.UNSUPPORTED_PARAMETER, "no images here"))
    assert runtimes.ends.judge(trial, trial.unit, refused, timeout=60) is Verdict.KEEP
    assert not place.breaker.is_closed
    assert place.answered_at == float("-inf")
    following = queue.next(trial)
    assert following is not None
    assert following.is_trial


def test_what_a_rows_end_has_to_say_is_logged_when_nobody_waits_for_the_lock() -> None:
    """A log on a full pipe blocks; then one row waits for it, and not every lane of the worker."""
    now = [0.0]
    runtimes = Runtimes([SteeredExecutor()], lambda: now[0])
    runtimes.probe()
    queue = RowQueue(runtimes)
    queue.put([unit(n) for n in range(FAILURES + 1)])
    said: dict[str, bool] = {}

    def hear(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        said[event["event"]] = runtimes.lock.locked()
        raise structlog.DropEvent

    structlog.configure(processors=[hear])
    refused = Reply(status=503, blame=Blame.RUNTIME)
    for _ in range(FAILURES):
        run = queue.take()
        assert run is not None
        runtimes.ends.judge(run, run.unit, refused, timeout=60)
        queue.done(run)
    now[0] += LONGEST_PAUSE_SECONDS
    trial = queue.take()
    assert trial is not None
    runtimes.ends.judge(trial, trial.unit, Reply(status=200, body=b"{}"), timeout=60)
    assert said == {"runtime.failing": False, "runtime.answers_again": False}
