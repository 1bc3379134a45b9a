"""What holds of batches, jobs, leases and workers whoever did what: docs/lifecycle.md, and the contract."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlmodel import select

from app.db import presence as presence_sql
from app.db.tables import Batch, Job, Lease, Worker
from app.domain import batches, jobs, leases, workers
from app.domain.batches import ENDED
from app.domain.retention import Kept
from app.domain.rowsets import RowSet
from app.services import presence, results
from app.services.context import Yard
from app.sweeps import batch_expiry, lease_expiry
from tests.yards import USER, Controller, batch, machine, result_files

# What a reader's glance changes, the bells, and what retention says it left: nothing of a batch's own.
_NOT_THE_BATCHS_OWN = {"seen", "retry_count", "rung_at", "ring_no", "stop_spread_at", "kept", "top_errors"}
_LESS_AND_LESS = [Kept.ROWS, Kept.JOBS, Kept.BATCH]
TABLES: Mapping[type[Any], Mapping[Any, frozenset[Any]]] = {
    Batch: batches.TRANSITIONS,
    Job: jobs.TRANSITIONS,
    Lease: leases.TRANSITIONS,
    Worker: workers.TRANSITIONS,
}


def reachable(table: Mapping[Any, frozenset[Any]], start: Any) -> set[Any]:
    """Every state that may follow, in any number of steps, and the state itself."""
    found, new = {start}, {start}
    while new:
        new = {after for state in new for after in table[state]} - found
        found |= new
    return found


class History:
    """Looks at everything after each step, and compares it with the look before."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._states: dict[tuple[str, Any], Any] = {}
        self._counts: dict[int, tuple[int, int, int]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self.kept: dict[str, Kept] = {}
        """What retention had left of each batch, at the last look."""

    def leases(self) -> dict[int, Lease]:
        with self._yard.store.read() as session:
            return {found.id or 0: found for found in session.exec(select(Lease))}

    def look(self) -> None:
        """Assert that no state came about that no table allows, that counts only grew, and what has ended stayed."""
        with self._yard.store.read() as session:
            found = {kind: list(session.exec(select(kind))) for kind in TABLES}
        for kind, table in TABLES.items():
            for one in found[kind]:
                key = (kind.__name__, one.id)
                before = self._states.get(key)
                if before is not None:
                    assert one.state in reachable(table, before), f"{key}: {before} -> {one.state}"
                self._states[key] = type(next(iter(table)))(one.state)
        for job in found[Job]:
            counts = (job.completed, job.failed, job.attempts)
            assert all(now >= then for now, then in zip(counts, self._counts.get(job.id, counts), strict=True))
            self._counts[job.id] = counts
        for one in found[Batch]:
            if one.state in ENDED:
                told = one.model_dump(exclude=_NOT_THE_BATCHS_OWN)
                assert self._ended.setdefault(one.id, told) == told, "a batch that had ended has changed"
            left = _LESS_AND_LESS[_LESS_AND_LESS.index(self.kept.get(one.id, Kept.ROWS)) :]
            assert one.kept in (left if one.state in ENDED else [Kept.ROWS]), f"{one.id} keeps {one.kept} of {left}"
            self.kept[one.id] = Kept(one.kept)


def ended(yard: Yard, batch_id: str) -> bool:
    return batch(yard, batch_id).state in ENDED


def jump(yard: Yard, seconds: float) -> timedelta | None:
    """Move time as `later` does while an API process listens, in one step: its ticks would be most of a run's work.

    Gives the gap that was found, if nobody had listened before.
    """
    gap = presence.tick(yard)
    yard.store.clock_shift += timedelta(seconds=seconds)
    with yard.store.begin() as session:
        now = yard.store.now(session)
        presence_sql.move_tick(session, presence_sql.locked_tick(session, now), now)
    return gap


def end_all(yard: Yard, controller: Controller, answers: dict[tuple[str, int], str]) -> None:
    """Let time pass and one good worker do what is left; its rows come to the `answers`."""
    last = machine(yard, "the-last", slots=50)
    for _ in range(4):
        jump(yard, 400)
        lease_expiry.run_once(yard, 1000)
        batch_expiry.run_once(yard, 1000)
        controller.works()
        last.beat()
        while (answer := last.claim(want=1000)).batch is not None:
            for grant in answer.grants:
                rest = RowSet.span(grant.first_row, grant.rows) - RowSet.parse(grant.done)
                answers |= {(answer.batch.id, row): "ok" for row in rest}
                last.finish(answer.batch.id, grant)
        controller.works()
        with yard.store.read() as session:
            if all(found.state in ENDED for found in session.exec(select(Batch))):
                return


def assert_contract(yard: Yard, batch_id: str, *, rows: int, answers: Mapping[tuple[str, int], str]) -> None:
    """Assert the invariants of a batch that has ended (OPENAI_CONTRACT 1.6); `answers` are the rows that are stored."""
    found = batch(yard, batch_id)
    stored = {row: answer for (of, row), answer in answers.items() if of == batch_id}
    if found.state == "failed" or found.validated_at is None:
        assert (found.output_file_id, found.error_file_id) == (None, None)
        assert (found.total or 0, found.completed or 0, found.failed or 0, stored) == (0, 0, 0, {})
        return
    output, errors = result_files(yard, batch_id)
    ids = [line["custom_id"] for line in output + errors]
    assert sorted(ids) == sorted(f"row-{n}" for n in range(rows)), "every id once over both files"
    assert (len(output), len(errors)) == (found.completed, found.total - (found.completed or 0))
    if found.state == "completed":
        assert (found.completed or 0) + (found.failed or 0) == found.total == rows
    assert (found.output_file_id is None) == (not output)
    assert (found.error_file_id is None) == (not errors)
    for line in output:
        assert line["response"]["body"] == stored[int(line["custom_id"].removeprefix("row-"))], "another one's answer"
    for line in errors:
        row = int(line["custom_id"].removeprefix("row-"))
        assert (line["error"]["code"] == "request_timeout") == (row in stored), line
    whole = b"".join(results.read(yard, USER, batch_id).lines)
    assert whole.count(b"\n") == rows
