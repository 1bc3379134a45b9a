"""Validating a batch: read its input once, then fail it with every bad line named, or cut it into shards (DESIGN 7).

Models are decided here, for the whole batch: nobody in the pool ever served one, and the batch fails; somebody did, and
it waits for them (R-23).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import locks
from app.db import workers as workers_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Worker
from app.domain.batches import BatchState
from app.domain.eligibility import Requirement, Serving, can_serve, missing_models, undecided
from app.domain.input_lines import CheckedLine, check_line
from app.domain.inputs import MAX_STORED_ERRORS, InputLimits, InputReport, Shard
from app.domain.inputs import validate as validate_input
from app.domain.jobs import JobKind, LeaseEnd
from app.domain.leases import LIVE
from app.domain.lines import read_lines
from app.domain.workers import WorkerState
from app.services.context import Limits, Yard
from app.services.eligibility import servings
from app.services.endings import Ending, end_leases
from app.services.moves import move, stopping

CHUNK = 1024 * 1024
OpenChunks = Callable[[], Iterable[bytes]]
Servings = Sequence[Collection[Serving]]


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is to be stored: entries of `errors.data[]` with their true number, or the report's shards."""

    report: InputReport
    errors: Sequence[dict[str, object]] = ()
    error_count: int = 0


def validate(yard: Yard, lease_id: int, batch_id: str) -> Batch | None:
    """Validate under a control lease; None when the lease was lost meanwhile.

    Raises BlobError when the input cannot be read now.
    """
    with yard.store.read() as session:
        batch = batches_sql.by_id(session, batch_id)
        if batch is None:
            raise LookupError(f"there is no batch {batch_id}")
        key = input_blob(session, batch_id)
        pool = _pool(workers_sql.ever_of_pool(session, batch.pool))

    def open_chunks() -> Iterator[bytes]:
        with yard.blobs.open(key) as source:
            while chunk := source.read(CHUNK):
                yield chunk

    limits = _input_limits(yard.limits)
    report = validate_input(open_chunks, endpoint=batch.endpoint, limits=limits)
    finding = _judge_lines(report) or _judge_models(report, batch, pool, open_chunks, limits) or _Finding(report)
    return yard.store.run(lambda session: _conclude(session, yard, lease_id, batch_id, finding))


def _pool(workers: Sequence[Worker]) -> Servings:
    """Give what the pool's workers serve or served; nothing at all while one that is there has not told yet."""
    present = (worker for worker in workers if worker.offline_at is None and worker.state != WorkerState.GONE)
    if any(undecided(servings(worker)) for worker in present):
        return ()
    return [servings(worker) for worker in workers]


def _input_limits(limits: Limits) -> InputLimits:
    return InputLimits(
        max_rows=limits.max_rows,
        max_line_bytes=limits.max_line_bytes,
        shard_rows=limits.shard_rows,
        shard_bytes=limits.shard_bytes,
    )


def _judge_lines(report: InputReport) -> _Finding | None:
    if report.ok:
        return None
    errors = [_entry(error.code.value, error.message, error.param, error.line) for error in report.errors]
    return _Finding(report, _capped(errors, report.error_count), report.error_count)


def _judge_models(
    report: InputReport, batch: Batch, pool: Servings, open_chunks: OpenChunks, limits: InputLimits
) -> _Finding | None:
    """Fail what nobody of the pool could ever run.

    With no worker registered yet, or one whose runtime never answered, nobody can say: the batch waits, and says so.
    """
    if not pool:
        return None
    need = Requirement(batch.endpoint, report.models)
    if missing := missing_models(pool, need):
        known = sorted({model for runtimes in pool for serving in runtimes for model in serving.models})
        errors, count = _lines_of(missing, known, batch, open_chunks, limits)
        return _Finding(report, _capped(errors, count), count)
    apart = [shard for shard in report.shards if not _someone_serves(pool, batch.endpoint, shard)]
    if not apart:
        return None
    errors = [_apart_error(batch, shard) for shard in apart[:MAX_STORED_ERRORS]]
    return _Finding(report, _capped(errors, len(apart)), len(apart))


def _someone_serves(pool: Servings, endpoint: str, shard: Shard) -> bool:
    need = Requirement(endpoint, shard.models)
    return any(can_serve(runtimes, need, live_only=False) for runtimes in pool)


def _lines_of(
    missing: Collection[str], known: Sequence[str], batch: Batch, open_chunks: OpenChunks, limits: InputLimits
) -> tuple[list[dict[str, object]], int]:
    """Read the input again for the lines that name a missing model: the first hundred, and how many there are."""
    errors: list[dict[str, object]] = []
    count = 0
    has = f"It has {', '.join(known[:20])}." if known else "Its workers have no model loaded."
    for line in read_lines(open_chunks(), max_line_bytes=limits.max_line_bytes):
        checked = check_line(line, endpoint=batch.endpoint)
        if not isinstance(checked, CheckedLine) or checked.model not in missing or checked.rejected:
            continue
        count += 1
        if len(errors) < MAX_STORED_ERRORS:
            message = f"No worker of pool '{batch.pool}' serves the model {checked.model!a} on {batch.endpoint}. {has}"
            errors.append(_entry("model_not_found", message, "body.model", line.number))
    return errors, count


def _apart_error(batch: Batch, shard: Shard) -> dict[str, object]:
    models = ", ".join(ascii(model) for model in shard.models[:20])
    message = (
        f"No single worker of pool '{batch.pool}' serves all of {models}, which stand among rows "
        f"{shard.first_row + 1} to {shard.first_row + shard.rows}. Sort the file by model, or send one batch a model."
    )
    return _entry("model_not_found", message, "body.model", None)


def _capped(errors: Sequence[dict[str, object]], count: int) -> list[dict[str, object]]:
    left_out = count - len(errors)
    more = [_entry("too_many_errors", f"And {left_out} more errors.", None, None)] if left_out > 0 else []
    return [*errors, *more]


def _entry(code: str, message: str, param: str | None, line: int | None) -> dict[str, object]:
    return {"code": code, "message": message, "param": param, "line": line}


def _conclude(session: Session, yard: Yard, lease_id: int, batch_id: str, finding: _Finding) -> Batch | None:
    lease = locks.leases(session, [lease_id]).get(lease_id)
    if lease is None or lease.state not in LIVE:
        return None
    now = yard.store.now(session)
    actor = f"worker:{lease.worker_id}"
    locks.jobs(session, [lease.job_id])
    batch = locks.batch(session, batch_id)
    if batch is None:
        raise LookupError(f"there is no batch {batch_id}")
    if stopping(batch):
        pass  # it ends without having been valid or invalid: no shards, no errors (PROTOCOL 5)
    elif finding.errors:
        batch.errors, batch.error_count = list(finding.errors), finding.error_count
        move(session, batch, BatchState.FAILED, now=now, actor=actor, data={"errors": finding.error_count})
    else:
        _plan(session, batch, finding.report)
        for shard in finding.report.shards:
            session.add(_job(batch, shard, now=now))
        data = {"rows": batch.total, "shards": batch.shards}
        move(session, batch, BatchState.VALIDATED, now=now, actor=actor, data=data)
    session.flush()
    return end_leases(
        session, [Ending(lease, LeaseEnd.DONE)], now=now, limits=yard.limits, max_losses=None, actor=actor
    )


def _plan(session: Session, batch: Batch, report: InputReport) -> None:
    needs = {Requirement(batch.endpoint, shard.models) for shard in report.shards}
    batch.requirements = {need.key: {"endpoint": need.endpoint, "models": list(need.models)} for need in needs}
    batch.models = list(report.models)
    batch.total, batch.shards = report.rows, len(report.shards)
    batch.open_jobs += len(report.shards)
    session.add(batch)


def _job(batch: Batch, shard: Shard, now: datetime) -> Job:
    return Job(
        kind=JobKind.SHARD,
        batch_id=batch.id,
        number=shard.number,
        requirement_key=Requirement(batch.endpoint, shard.models).key,
        first_row=shard.first_row,
        rows=shard.rows,
        start=shard.start,
        end=shard.end,
        rejected=[[rejected.row, rejected.code.value, rejected.message] for rejected in shard.rejected],
        created_at=now,
    )
