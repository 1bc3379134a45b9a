"""Which runtime takes a row, and what a runtime that died means for it."""

from dataclasses import replace

import pytest

from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, ServedModel
from app.schemas.workers import MAX_MODEL_NAME, MAX_MODELS
from app.worker.probes import PATIENCE_SECONDS, Probes
from app.worker.runtimes import RuntimeGone, Runtimes
from executors.base import BaseExecutor
from executors.cancellation import CancelToken
from executors.fakes import FakeExecutor
from executors.settings import ExecutorSettings
from tests.fakes.steered_executor import SteeredExecutor

GONE = Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, "no connection"))


def row(model: str = "fake") -> Row:
    return Row(0, "row-0", "/v1/chat/completions", model, b"{}")


def probed(*executors: BaseExecutor) -> Runtimes:
    runtimes = Runtimes(executors)
    runtimes.probe()
    return runtimes


def run(runtimes: Runtimes, of: Row) -> Reply:
    return runtimes.execute(of, timeout=5, cancelled=CancelToken())


def test_a_row_goes_to_the_runtime_that_serves_its_model() -> None:
    runtimes = probed(
        FakeExecutor(ExecutorSettings(), "fake:?models=a"), FakeExecutor(ExecutorSettings(), "fake:?models=b")
    )
    assert run(runtimes, row("a")).ok
    assert run(runtimes, row("b")).ok


def test_a_model_that_vanished_fails_its_row_only() -> None:
    reply = run(probed(FakeExecutor(ExecutorSettings(), "fake:?models=a")), row("b"))
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.MODEL_NOT_FOUND


def test_a_row_of_a_dead_runtime_has_no_answer() -> None:
    executor = SteeredExecutor()
    executor.let_all()
    executor.answers[0] = lambda: GONE
    runtimes = probed(executor)
    assert run(runtimes, row()).error is not None  # alive by its last probe: the row's own fault
    executor.alive = False
    runtimes.probe()
    with pytest.raises(RuntimeGone):
        run(runtimes, row())


def test_a_row_whose_runtime_died_under_it_has_no_answer_either() -> None:
    executor = SteeredExecutor()
    executor.let_all()
    runtimes = probed(executor)

    def die() -> Reply:
        executor.alive = False
        runtimes.probe()
        return GONE

    executor.answers[0] = die
    with pytest.raises(RuntimeGone):
        run(runtimes, row())


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


def test_a_runtime_that_stays_away_is_said_once_and_its_return_too() -> None:
    now = [0.0]
    executor = SteeredExecutor()
    told: list[str] = []
    probes = Probes(
        probed(executor),
        lambda: now[0],
        on_change=lambda: told.append("change"),
        on_gone=lambda: told.append("gone"),
    )
    executor.alive = False
    for second in (0.0, PATIENCE_SECONDS - 1, PATIENCE_SECONDS, PATIENCE_SECONDS + 1):
        now[0] = second
        probes.turn()
    executor.alive = True
    probes.turn()
    assert told == ["change", "gone", "change"]


def test_a_runtime_that_lists_too_much_is_told_as_far_as_the_wire_takes_it() -> None:
    class Crowded(SteeredExecutor):
        def probe(self) -> RuntimeFacts:
            models = tuple(ServedModel(f"m{n}") for n in range(MAX_MODELS + 5))
            return replace(super().probe(), models=(ServedModel("x" * (MAX_MODEL_NAME + 1)), *models))

    (info,) = probed(Crowded()).infos()
    assert len(info.models) == MAX_MODELS
    assert info.models[0] == "m0"
