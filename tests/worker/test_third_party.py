"""Executors of a third party that raise where they should not: no lane, shard or row is lost to them (B-13, B-15)."""

import json
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from app.domain.parameter_table import EMBEDDINGS
from app.domain.rows import Blame, Reply, Row
from app.worker import chunks
from app.worker.agent import Agent
from tests.fakes.control_plane import FakeControlPlane, rows
from tests.fakes.steered_executor import SteeredExecutor


class CannotGroup(SteeredExecutor):
    def group(self, row: Row) -> Hashable:
        raise KeyError(row.number)


class GroupsByAList(SteeredExecutor):
    def group(self, row: Row) -> Hashable:
        return [row.model]  # type: ignore[return-value]


class CannotSayItsLimit(SteeredExecutor):
    def limit(self, row: Row) -> int | None:
        raise KeyError(row.number)


class CannotSayItsChunkSize(SteeredExecutor):
    @property
    def embedding_chunk_size(self) -> int:  # type: ignore[override]
        raise KeyError("size")


class AnswersNonsense(SteeredExecutor):
    """Says when to come back in words."""

    def __init__(self) -> None:
        super().__init__()
        nonsense: Any = "soon"
        self.answers[1] = lambda: Reply(status=503, body=b"{}", blame=Blame.RUNTIME, retry_after=nonsense)


def outcomes(plane: FakeControlPlane) -> dict[int, str | None]:
    return {row: (json.loads(line)["error"] or {}).get("code") for row, line in plane.stored.items()}


@pytest.mark.parametrize("kind", [CannotGroup, GroupsByAList, CannotSayItsLimit])
def test_one_that_cannot_say_how_rows_go_runs_them_all_the_same(
    plane: FakeControlPlane, start_agent: Callable[..., Agent], kind: type[SteeredExecutor]
) -> None:
    runtime = kind()
    runtime.let_all()
    plane.give_batch(list(rows(8)), shard_rows=4)
    start_agent([runtime])
    plane.wait(lambda: set(plane.states().values()) == {"reported"} and len(plane.stored) == 8)
    assert set(outcomes(plane).values()) == {None}


def test_a_reply_that_cannot_be_judged_costs_its_row_and_no_other(
    plane: FakeControlPlane, start_agent: Callable[..., Agent]
) -> None:
    runtime = AnswersNonsense()
    runtime.let_all()
    plane.give_batch(list(rows(4)), shard_rows=4)
    start_agent([runtime])
    plane.wait(lambda: set(plane.states().values()) == {"reported"} and len(plane.stored) == 4)
    assert outcomes(plane) == {0: None, 1: "INTERNAL_ERROR", 2: None, 3: None}


def test_one_that_cannot_say_how_many_rows_share_a_request_has_them_alone() -> None:
    row = Row(0, "row-0", EMBEDDINGS, "fake", b"{}")
    assert chunks.sharing([CannotSayItsChunkSize()], row) == ()
