"""A hand-in that is refused as a whole, by a proxy for its size or for one row of it: no shard runs for ever for it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.domain.rows import Usage
from app.domain.rowsets import RowSet
from app.worker import outbox
from tests.fakes.control_plane import Call, FakeControlPlane, refusal, rows
from tests.fakes.plane_answers import Answer
from tests.fakes.steered_executor import OK, SteeredExecutor
from tests.worker.conftest import StartAgent

REFUSED = refusal(400, "invalid_hand_in", "no such row")


def rows_in(call: Call) -> set[int]:
    return {row for part in call.body["parts"] for row in RowSet.parse(part["rows"])}


def refusing(told: Answer, *, when: Callable[[Call], bool]) -> Callable[[Call], Answer | None]:
    return lambda call: told if call.route == "results" and when(call) else None


@pytest.fixture(autouse=True)
def all_at_once(plane: FakeControlPlane, runtime: SteeredExecutor) -> None:
    """Two shards of four rows, whose rows are finished before the first hand-in is built."""
    plane.segment_seconds = 30.0
    plane.give_batch(list(rows(8)), shard_rows=4)
    runtime.let_all()


def test_one_row_that_is_not_taken_fails_its_shard_alone_and_everything_else_is_stored(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    plane.refuses = refusing(REFUSED, when=lambda call: 2 in rows_in(call))
    agent = start_agent(max_concurrent_prompts=8)
    plane.wait(lambda: plane.states() == {1: "failed", 2: "reported"})
    assert set(plane.stored) == {0, 1, 3, 4, 5, 6, 7}
    (report,) = plane.called("report-failure")
    assert "no such row" in report.body["error"]
    assert agent._shares.wait_none(5)
    assert not agent._own.spool.count()


def test_one_that_is_too_large_for_a_proxy_goes_home_in_pieces(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    whole: list[int] = []

    def is_large(call: Call) -> bool:
        whole.append(len(call.raw))
        return len(call.raw) > whole[0] * 3 // 4

    plane.refuses = refusing(Answer(413), when=is_large)
    start_agent(max_concurrent_prompts=8)
    plane.wait(lambda: plane.states() == {1: "reported", 2: "reported"})
    assert set(plane.stored) == set(range(8))
    assert not plane.called("report-failure")


def test_what_was_too_large_once_is_not_tried_again(
    plane: FakeControlPlane, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LEAST_BYTES", 1)
    plane.segment_seconds = 0.1
    plane.shards.clear()
    plane.give_batch(list(rows(100)), shard_rows=20)
    slow = SteeredExecutor()
    body = b'{"text":"%b"}' % (b"x" * 400)
    slow.answers = dict.fromkeys(range(100), lambda: replace(OK, body=body))
    large: list[int] = []

    def is_large(call: Call) -> bool:
        large.extend([len(call.raw)] * (len(call.raw) > 4000))
        return len(call.raw) > 4000

    plane.refuses = refusing(Answer(413), when=is_large)
    start_agent([slow], max_concurrent_prompts=100)
    for first in range(0, 100, 20):  # twelve kilobytes at a time
        slow.wait(lambda first=first: slow.running >= set(range(first, first + 20)))
        slow.let(*range(first, first + 20))
        plane.wait(lambda first=first: set(plane.stored) == set(range(first + 20)))
    assert large
    assert len(large) <= 5, "it would be three each time"


def test_while_none_is_taken_each_shard_fails_after_a_few_calls(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    plane.refuses = refusing(Answer(413), when=lambda _call: True)
    agent = start_agent(max_concurrent_prompts=8)
    plane.wait(lambda: plane.states() == {1: "failed", 2: "failed"})
    assert agent._shares.wait_none(5)
    assert len(plane.called("results")) <= 11


def test_the_tokens_of_rows_that_go_home_in_pieces_are_counted_once(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    answer = replace(OK, usage=Usage(input_tokens=2, total_tokens=2))
    runtime.answers = dict.fromkeys(range(8), lambda: answer)
    plane.refuses = refusing(REFUSED, when=lambda call: len(rows_in(call)) > 1)
    start_agent(max_concurrent_prompts=8)
    plane.wait(lambda: plane.states() == {1: "reported", 2: "reported"})
    parts = [part for call in plane.called("results") for part in call.body["parts"]]
    taken = [part for part in parts if len(RowSet.parse(part["rows"])) == 1]
    assert sum(part["completed"] for part in taken) == 8
    assert sum(part["usage"]["total_tokens"] for part in taken) == 16
    assert len({(part["lease_id"], part["seq"]) for part in taken}) == 8
