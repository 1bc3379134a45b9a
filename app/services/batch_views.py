"""A batch as its owner sees it: OpenAI's object with what gpuyard knows beside it (OPENAI_CONTRACT 1.2)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import cautious as cautious_sql
from app.db import files as files_sql
from app.db import worker_views as workers_sql
from app.db.batches import Tally
from app.db.cautious import CautiousShard
from app.db.tables import Batch, Pool, Worker
from app.domain.batches import CLAIMABLE, ENDED, BatchState, inner_state, wire_status
from app.domain.eligibility import PoolRules, WorkerView
from app.domain.rows import Usage
from app.domain.waiting import why_cautious, why_held, why_no_rows, why_waiting
from app.schemas.batches import (
    BatchErrors,
    BatchObject,
    BatchUsage,
    InputDetails,
    Live,
    OutputDetails,
    RequestCounts,
    TopError,
    YardView,
)
from app.services.context import Yard
from app.services.eligibility import pool_rules, servings, told_pulls, worker_view
from app.services.moves import outcome_of
from app.services.requirements import requirements

TOP_ERRORS = 5


def show(session: Session, yard: Yard, batches: Sequence[Batch], now: datetime) -> list[BatchObject]:
    """Put batches on the wire: two queries for all, three for the running, two more for each of these."""
    crew = cache(partial(_crew, session, yard, now))
    running = {batch.id for batch in batches if batch.state not in ENDED and batch.shards}
    tallies = batches_sql.tallies(session, running)
    workers = batches_sql.workers_on(session, running)
    careful = cautious_sql.waiting_of(session, running)
    retried_by = batches_sql.retried_by(session, {batch.id for batch in batches if batch.state in ENDED})
    damaged = files_sql.damaged(session, {file_id for batch in batches for file_id in _files(batch).values()})
    return [
        _object(
            batch,
            tallies.get(batch.id, Tally()),
            _yard_view(
                session,
                crew,
                batch,
                tallies.get(batch.id, Tally()),
                workers.get(batch.id, 0),
                careful.get(batch.id),
                retried_by.get(batch.id, []),
                now,
                damaged,
            ),
        )
        for batch in batches
    ]


def top_errors(session: Session, batch: Batch) -> list[TopError]:
    """Return why rows failed, most frequent first; while a batch runs only those that failed with their shard.

    Of a batch that ended before `row_errors` were counted, too: retention kept that before it deleted what says so.
    """
    if batch.row_errors is not None:
        return [TopError.model_validate(error) for error in batch.row_errors[:TOP_ERRORS]]
    if batch.state == BatchState.FAILED:
        codes = Counter(str(error["code"]) for error in batch.errors)
        return [TopError(code=code, count=count) for code, count in codes.most_common(TOP_ERRORS)]
    if batch.top_errors is not None:
        return [TopError.model_validate(error) for error in batch.top_errors]
    if not batch.shards:
        return []
    found = batches_sql.shard_errors(session, batch.id, TOP_ERRORS)
    return [TopError(code=code, count=count, message=message) for code, count, message in found]


def _object(batch: Batch, tally: Tally, view: YardView) -> BatchObject:
    ended = batch.state in ENDED
    return BatchObject(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.models[0] if len(batch.models) == 1 else None,
        errors=BatchErrors.model_validate({"data": batch.errors}) if batch.errors else None,
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        status=wire_status(BatchState(batch.state), outcome_of(batch)),
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=int(batch.created_at.timestamp()),
        in_progress_at=_seconds(batch.in_progress_at),
        expires_at=int(batch.expires_at.timestamp()),
        finalizing_at=_seconds(batch.finalizing_at),
        completed_at=_seconds(batch.completed_at),
        failed_at=_seconds(batch.failed_at),
        expired_at=_seconds(batch.expired_at),
        cancelling_at=_seconds(batch.cancelling_at),
        cancelled_at=_seconds(batch.cancelled_at),
        request_counts=RequestCounts(
            total=batch.total,
            completed=(batch.completed or 0) if ended else tally.completed,
            failed=(batch.failed or 0) if ended else tally.failed,
        ),
        usage=_usage(batch, tally, ended=ended),
        metadata=batch.meta,
        gpuyard=view,
    )


def _yard_view(
    session: Session,
    crew: Callable[[str], "_Crew"],
    batch: Batch,
    tally: Tally,
    workers: int,
    careful: CautiousShard | None,
    retried_by: Sequence[str],
    now: datetime,
    damaged: Mapping[str, str],
) -> YardView:
    runs, ended = batch.state in CLAIMABLE and batch.outcome is None, batch.state in ENDED
    pace = batches_sql.pace(session, batch.id, now) if runs and workers else None
    left = batch.total - tally.completed - tally.failed
    on_it = batches_sql.holders(session, batch.id) if runs and workers else []
    waits = _waiting_reason(session, crew(batch.pool), batch) if runs and not workers else _held_up(batch, on_it, pace)
    if batch.state in {BatchState.VALIDATING, BatchState.FINALIZING}:
        waits = batch.waiting_reason
    if runs and careful is not None and careful.worker is not None:
        waits = why_cautious(careful.number, careful.worker)
    return YardView(
        state=inner_state(BatchState(batch.state), outcome_of(batch)),
        pool=batch.pool,
        priority=9 - batch.rank,
        group=batch.fair_group,
        unsupported_parameters="drop" if batch.drop_parameters else "fail",
        canary_rows=batch.canary_rows,
        shards=batch.shards,
        workers=workers,
        rows_per_second=round(pace, 3) if pace is not None else None,
        eta_seconds=round(left / pace) if pace else None,
        waiting_reason=waits,
        damaged="; ".join(f"the {name} {id_}: {damaged[id_]}" for name, id_ in _files(batch).items() if id_ in damaged)
        or None,
        top_errors=top_errors(session, batch),
        live=_live(batch, on_it) if runs and workers else None,
        answers_off_format=(batch if ended else tally).answers_off_format,
        answers_other_model=(batch if ended else tally).answers_other_model,
        retry_of=batch.retry_of,
        retried_by=list(retried_by),
    )


def _files(batch: Batch) -> dict[str, str]:
    files = {"input": batch.input_file_id, "output file": batch.output_file_id, "error file": batch.error_file_id}
    return {name: file_id for name, file_id in files.items() if file_id is not None}


def _live(batch: Batch, workers: Sequence[Worker]) -> Live:
    mine = [worker.progress for worker in workers if worker.progress and worker.progress.get("batch_id") == batch.id]
    return Live(completed=sum(p["completed"] for p in mine), failed=sum(p["failed"] for p in mine))


def _held_up(batch: Batch, workers: Sequence[Worker], pace: float | None) -> str | None:
    """Name the models or runtimes that keep a batch's workers waiting; while rows are done it waits for no model."""
    told = ((worker.name, [pull.to_domain() for pull in told_pulls(worker)]) for worker in workers)
    fetches = None if pace else why_no_rows(told, batch.models)
    return fetches or why_held(((worker.name, servings(worker)) for worker in workers), requirements(batch).values())


class _Crew(NamedTuple):
    """A pool's workers that have not left, as eligibility sees them now, and the pool's thresholds."""

    workers: Sequence[WorkerView]
    rules: PoolRules


def _crew(session: Session, yard: Yard, now: datetime, name: str) -> _Crew:
    pool = session.get(Pool, name)
    present = workers_sql.of_pool(session, name)
    held = workers_sql.held_batches(session, [worker.id for worker in present])
    views = [
        worker_view(worker, now=now, timing=yard.timing, held_batches=held.get(worker.id, 0), overlap=0)
        for worker in present
    ]
    return _Crew(views, pool_rules(pool))


def _waiting_reason(session: Session, crew: _Crew, batch: Batch) -> str:
    return why_waiting(
        crew.workers,
        requirements(batch).values(),
        pool=batch.pool,
        rules=crew.rules,
        earlier=batches_sql.earlier(session, batch),
    )


def _usage(batch: Batch, tally: Tally, *, ended: bool) -> BatchUsage | None:
    """Tokens so far, or as stored at the end; null for a batch that never ran."""
    if batch.validated_at is None:
        return None
    stored = batch.usage or {}
    usage = Usage(*(stored.get(count.name, 0) for count in fields(Usage))) if ended else tally.usage
    return _on_wire(usage)


def _on_wire(usage: Usage) -> BatchUsage:
    return BatchUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )


def _seconds(at: datetime | None) -> int | None:
    return int(at.timestamp()) if at is not None else None
