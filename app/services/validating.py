"""Validating a batch: read its input once, then fail it with every bad line named, or cut it into shards (DESIGN 7).

Models and parameters are decided here, for the whole batch (app.services.judging).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlmodel import Session

from app.blobs.store import BlobDamaged, BlobMissing
from app.checksums import GrowingSums
from app.db import batches as batches_sql
from app.db import locks
from app.db import workers as workers_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Lease, Worker
from app.domain.batches import BatchState
from app.domain.contents import ContentKind, damaged_file
from app.domain.eligibility import Serving, undecided
from app.domain.input_errors import InputError, InputErrorCode, InputErrors
from app.domain.inputs import InputLimits, InputReport, Shard
from app.domain.inputs import validate as validate_input
from app.domain.jobs import JobKind, LeaseEnd
from app.domain.leases import LIVE
from app.domain.parameters import NONE
from app.domain.workers import WorkerState
from app.services import blobs, damage, missing, models, rings
from app.services.context import BatchRing, Limits, Yard
from app.services.eligibility import servings
from app.services.endings import Ending, end_locked
from app.services.judging import SHOWN, Question, judge, requirement, set_apart
from app.services.moves import move, stopping

ASK_SECONDS = 5.0
"""A batch that waits for workers looks so often whether it waits for any; their answers let it go on at once."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What reading a batch's input has found. Nothing of it is stored."""

    report: InputReport
    left_out: frozenset[str] = NONE
    """What is left out of each row, because it reaches across requests."""
    missing: Collection[str] = ()
    """Models that nobody serves, as far as is known: workers are asked again, since `asked_at`."""
    asked_at: datetime | None = None
    is_gone: bool = False
    """The input is gone, which nobody has recorded yet; a damaged one is recorded as it is read."""


def validate(yard: Yard, lease_id: int, batch_id: str) -> Batch | None:
    """Validate under a control lease, and ring for the shards.

    Gives the batch when something else is to be rung for; None when not, or when the lease was lost meanwhile.
    Raises BlobError when the input cannot be read now. At the last of its tries a missing one fails the batch.
    """
    try:
        judged = read(yard, batch_id)
    except BlobMissing as error:
        with yard.store.read() as session:
            if not missing.is_last_try(session, lease_id):
                raise BlobMissing(f"the input is missing: {error}") from error
        gone = without_input("The stored content of the input file is gone. Upload the file again.")
        judged = replace(gone, is_gone=True)

    def work(session: Session) -> tuple[Batch | None, BatchRing | None]:
        lease = locks.leases(session, [lease_id]).get(lease_id)
        if lease is None or lease.state not in LIVE:
            return None, None
        now = yard.store.now(session)
        job = locks.jobs(session, [lease.job_id])[lease.job_id]
        batch = locks.batch(session, lease.batch_id)
        if batch is None:
            raise LookupError(f"there is no batch {lease.batch_id}")
        return batch, conclude(session, yard, lease, job, batch, judged, now)

    batch, ring = yard.store.run(work)
    if judged.is_gone and batch is not None and batch.state == BatchState.FAILED:
        yard.counters.damaged(ContentKind.INPUT)
    if ring is None:
        return batch
    yard.bells.publish(ring)
    return None


def read(yard: Yard, batch_id: str) -> Judged:
    """Read and judge a batch's input; one that is damaged is refused. Raises BlobError when it cannot be read now.

    Where nobody serves one of its models, the workers that are there are asked for theirs, once, before that is said.
    """
    with yard.store.read() as session:
        batch = batches_sql.by_id(session, batch_id)
        if batch is None:
            raise LookupError(f"there is no batch {batch_id}")
        content = blobs.recorded(session, input_blob(session, batch_id))
        workers = workers_sql.ever_of_pool(session, batch.pool)
        is_settled = models.are_settled(session, yard, workers, batch.models_asked_at)
    pool = _pool(workers)

    def open_chunks() -> Iterator[bytes]:
        return damage.pieces(yard, content)

    limits = _input_limits(yard.limits)
    try:
        sums = GrowingSums(limits.max_line_bytes)
        report = validate_input(open_chunks, endpoint=batch.endpoint, limits=limits, sums=sums)
        report, crossing = set_apart(report) if yard.cross_request != "pass" else (report, NONE)
        forbidden = crossing if yard.cross_request == "fail" else NONE
        if missing := judge(Question(batch, report, pool, limits, open_chunks, forbidden, is_settled)):
            return Judged(report, missing=missing, asked_at=batch.models_asked_at or models.ask_again(yard, batch.pool))
    except BlobDamaged as error:
        return without_input(damaged_file(batch.input_file_id, ContentKind.INPUT, error.what))
    return Judged(report, crossing)


def without_input(message: str) -> Judged:
    """Judge a batch whose input is damaged or gone: it fails."""
    found = InputErrors()
    found.add_of_file(InputError(InputErrorCode.INPUT_DAMAGED, message, None, None))
    return Judged(InputReport("", 0, found, (), ()))


def conclude(
    session: Session, yard: Yard, lease: Lease, job: Job, batch: Batch, judged: Judged, now: datetime
) -> BatchRing | None:
    """Store what was found and end the lease; it, its job and its batch are locked. Gives a ring that is noted."""
    report = judged.report
    actor = f"worker:{lease.worker_id}"
    ring = None
    waits = False
    if stopping(batch):
        pass  # it ends without having been valid or invalid: no shards, no errors (PROTOCOL 5)
    elif judged.missing:
        waits = True
        names = ", ".join(ascii(model) for model in sorted(judged.missing)[:SHOWN])
        batch.models_asked_at = judged.asked_at
        batch.waiting_reason = f"no worker of pool {batch.pool} serves {names}: they are asked for their models again"
    elif not report.ok:
        batch.errors = [error._asdict() | {"code": error.code.value} for error in report.errors]
        batch.error_count = report.error_count
        if judged.is_gone:
            damage.record(session, batch, BlobMissing.what, now=now, actor=actor, file=batch.input_file_id)
        move(session, batch, BatchState.FAILED, now=now, actor=actor, data={"errors": report.error_count})
    else:
        batch.left_out = sorted(judged.left_out)
        _plan(session, batch, report)
        for shard in report.shards:
            session.add(_job(batch, shard, now=now))
        data = {"rows": batch.total, "shards": batch.shards}
        move(session, batch, BatchState.VALIDATED, now=now, actor=actor, data=data)
        ring = rings.note_batch(session, yard, batch, shards=batch.shards, now=now) if yard.bells.heard else None
    ending = Ending(lease, LeaseEnd.RELEASED if waits else LeaseEnd.DONE)
    held = {lease.job_id: job}
    end_locked(session, [ending], held, batch, now=now, limits=yard.limits, max_losses=None, actor=actor)
    if waits:
        job.not_before_at = now + timedelta(seconds=ASK_SECONDS)
    return ring


def _pool(workers: Sequence[Worker]) -> Sequence[Collection[Serving]]:
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
        max_models=limits.max_models,
        max_requirements=limits.max_requirements,
    )


def _plan(session: Session, batch: Batch, report: InputReport) -> None:
    needs = {requirement(batch, shard) for shard in report.shards}
    batch.requirements = {
        need.key: {
            "endpoint": need.endpoint,
            "models": list(need.models),
            "parameters": {model: list(names) for model, names in need.parameters},
        }
        for need in needs
    }
    batch.models = list(report.models)
    batch.total, batch.shards = report.rows, len(report.shards)
    batch.open_jobs += len(report.shards)
    session.add(batch)


def _job(batch: Batch, shard: Shard, now: datetime) -> Job:
    return Job(
        kind=JobKind.SHARD,
        batch_id=batch.id,
        number=shard.number,
        requirement_key=requirement(batch, shard).key,
        first_row=shard.first_row,
        rows=shard.rows,
        start=shard.start,
        end=shard.end,
        input_sum=shard.input_sum,
        rejected=[[rejected.row, rejected.code.value, rejected.message] for rejected in shard.rejected],
        created_at=now,
    )
