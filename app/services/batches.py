"""Batches: made once however often their create is sent, shown, listed (PROTOCOL 9, OPENAI_CONTRACT 1.3)."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import events, exclusive, pools
from app.db import files as files_sql
from app.db.tables import Batch, Job
from app.domain.errors import BadRequest, Conflict
from app.domain.jobs import ControlVerb, JobKind
from app.domain.org_limits import check_quota
from app.domain.windows import parse_window
from app.schemas.batches import ENDPOINTS, BatchObject, NewBatch
from app.schemas.listing import Listing, page
from app.services import batch_views, cursors, ids, rings
from app.services.context import Caller, ControlRing, Yard
from app.services.own_batch import own_batch
from app.services.whole_rows import check_whole

RETRY_WINDOW = timedelta(minutes=2)
"""For so long a retried create may be answered with the batch of its first try."""
KEY_LIFE = timedelta(days=1)
"""For so long an `Idempotency-Key` means the batch it made."""
MAX_BATCHES_LISTED = 100


@dataclass(frozen=True, slots=True)
class Call:
    """How a call that makes a batch came: `digest` names its arguments, `retry_count` is `x-stainless-retry-count`."""

    digest: str
    retry_count: int = 0
    idempotency_key: str | None = None


def create(
    yard: Yard, caller: Caller, wanted: NewBatch, *, retry_count: int = 0, idempotency_key: str | None = None
) -> BatchObject:
    """Make a batch, or return the one that this same call has made before.

    Raises BadRequest for arguments that cannot be, and what `make_once` raises.
    """
    window_of(wanted)
    call = Call(args_digest(wanted, pool=_pool(yard, wanted)), retry_count, idempotency_key)
    return make_once(yard, caller, call, lambda session: build(session, yard, caller, wanted))


def make_once(yard: Yard, caller: Caller, call: Call, make: Callable[[Session], Batch]) -> BatchObject:
    """Store the batch that `make` builds with its validation as control work, unless this same call has made one.

    Raises Conflict for an idempotency key that came with other arguments, LimitReached for an org with too many batches
    that have not ended.
    """

    def work(session: Session) -> tuple[BatchObject, Job | None]:
        exclusive.hold(session, _locks(caller, call))
        now = yard.store.now(session)
        batch = _made_before(session, caller, call, now)
        validation = None
        if batch is None:
            bound = yard.limits.org.batches
            check_quota(yard.limits.org, "batches", batches_sql.open_count(session, caller.org_id, bound))
            batch = make(session)
            batch.args_digest = call.digest
            batch.idempotency_key = call.idempotency_key
            batch.retry_count = call.retry_count
            validation = _insert(session, yard, caller, batch)
        return batch_views.show(session, yard, [batch], now)[0], validation

    shown, validation = yard.store.run(work)
    if validation is not None and validation.rung_at is not None:
        yard.bells.publish(ControlRing(validation.id or 0, shown.id, validation.ring_no))
    return shown


def made_before(yard: Yard, caller: Caller, call: Call) -> BatchObject | None:
    """Return the batch that this same call has made, for one that has much to do before `make_once`."""

    def work(session: Session) -> BatchObject | None:
        exclusive.hold(session, _locks(caller, call))
        now = yard.store.now(session)
        batch = _made_before(session, caller, call, now)
        return batch_views.show(session, yard, [batch], now)[0] if batch is not None else None

    return yard.store.run(work)


def build(session: Session, yard: Yard, caller: Caller, wanted: NewBatch) -> Batch:
    """Build a batch that is not stored yet. Raises BadRequest for arguments that cannot be."""
    now = yard.store.now(session)
    expires_at = now + window_of(wanted)
    batch = _new(session, caller, wanted, pool=_pool(yard, wanted), now=now, expires_at=expires_at)
    batch.drop_parameters = _drops(yard, wanted)
    batch.canary_rows = yard.canary_rows if wanted.canary_rows is None else wanted.canary_rows
    return batch


def retrieve(yard: Yard, caller: Caller, batch_id: str, *, reduced: bool = False) -> BatchObject:
    """Show a batch. Raises NotFound, and Unreadable unless it may be `reduced` to what can be read of it."""
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        if not reduced:
            check_whole(batch, batch_id)
        shown = batch_views.show(session, yard, [batch], yard.store.now(session))[0]
    _note_seen(yard, caller, [batch])
    return shown


def now(yard: Yard, batch_ids: Collection[str]) -> list[BatchObject]:
    """Show batches, for readers that were let in before; those that are forgotten are left out."""
    with yard.store.read() as session:
        return batch_views.show(session, yard, batches_sql.by_ids(session, batch_ids), yard.store.now(session))


def listed(yard: Yard, caller: Caller, *, after: str | None = None, limit: int = 20) -> Listing[BatchObject]:
    """List the org's batches behind the batch `after`, newest first. Raises BadRequest for an unknown `after`."""
    with yard.store.read() as session:
        after_seq = cursors.behind(
            after, lambda id_: batches_sql.seq_of(session, id_, caller.org_id), "No such Batch object"
        )
        found = batches_sql.page(session, caller.org_id, after_seq=after_seq, limit=limit + 1)
        data = batch_views.show(session, yard, found[:limit], yard.store.now(session))
    _note_seen(yard, caller, found[:limit])
    return page(data, has_more=len(found) > limit)


def args_digest(wanted: NewBatch, *, pool: str) -> str:
    """Name the arguments of a create: equal calls have equal digests."""
    return digest_of(wanted.model_dump() | {"pool": pool})


def digest_of(arguments: Mapping[str, object]) -> str:
    """Name any arguments of a call that makes a batch."""
    return sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


def window_of(wanted: NewBatch) -> timedelta:
    """Return how long a batch has. Raises BadRequest, for an endpoint that there is not, too."""
    if wanted.endpoint not in ENDPOINTS:
        raise BadRequest(
            f"Invalid value for 'endpoint': {wanted.endpoint!r} is none of {', '.join(ENDPOINTS)}.",
            code="invalid_value",
            param="endpoint",
        )
    try:
        return parse_window(wanted.completion_window)
    except ValueError as error:
        message = f"Invalid value for 'completion_window': {wanted.completion_window[:40]!r}; {error}."
        raise BadRequest(message, code="invalid_value", param="completion_window") from error


def _pool(yard: Yard, wanted: NewBatch) -> str:
    return wanted.pool if wanted.pool is not None else yard.default_pool


def _drops(yard: Yard, wanted: NewBatch) -> bool:
    return yard.drop_parameters if wanted.unsupported_parameters is None else wanted.unsupported_parameters == "drop"


def _locks(caller: Caller, call: Call) -> list[str]:
    keys = [f"create:{caller.token_id}:{call.digest}", f"batches:{caller.org_id}"]
    return keys if call.idempotency_key is None else [*keys, f"create-key:{caller.token_id}:{call.idempotency_key}"]


def _made_before(session: Session, caller: Caller, call: Call, now: datetime) -> Batch | None:
    """Find the batch that an earlier try of this call made. Both locks are held."""
    if caller.token_id is None:
        return None
    if call.idempotency_key is not None:
        batch = batches_sql.by_idempotency_key(
            session, token_id=caller.token_id, key=call.idempotency_key, since=now - KEY_LIFE
        )
        if batch is not None and batch.args_digest != call.digest:
            message = "this Idempotency-Key made a batch with other arguments; use a new key for another batch"
            raise Conflict(message, code="idempotency_key_reused")
        return batch
    if call.retry_count <= 0:
        return None
    batch = batches_sql.retried(
        session, token_id=caller.token_id, digest=call.digest, since=now - RETRY_WINDOW, below=call.retry_count
    )
    if batch is not None:
        batch.retry_count = call.retry_count
        session.add(batch)
    return batch


def _new(
    session: Session, caller: Caller, wanted: NewBatch, *, pool: str, now: datetime, expires_at: datetime
) -> Batch:
    if pools.usable(session, pool, caller.org_id) is None:
        names = ", ".join(known.name for known in pools.visible(session, caller.org_id))
        raise BadRequest(f"No such pool: {pool}. There are: {names}", code="pool_not_found", param="pool")
    # Locked, so that a delete either comes first and is seen here, or sees this batch.
    file = files_sql.find(session, wanted.input_file_id, org_id=caller.org_id, now=now, lock=True)
    if file is None:
        message = f"No such File object: {wanted.input_file_id}"
        raise BadRequest(message, code="file_not_found", param="input_file_id")
    if file.purpose != "batch":
        message = f"Invalid file purpose: {file.id} has the purpose {file.purpose!r}, a batch reads one of 'batch'."
        raise BadRequest(message, code="invalid_file_purpose", param="input_file_id")
    expiry = wanted.output_expires_after
    return Batch(
        id=ids.new("batch_"),
        org_id=caller.org_id,
        endpoint=wanted.endpoint,
        completion_window=wanted.completion_window,
        input_file_id=file.id,
        pool=pool,
        rank=9 - wanted.priority,
        fair_group=wanted.group,
        meta=wanted.metadata,
        output_expires_seconds=expiry.seconds if expiry is not None else None,
        open_jobs=1,
        created_at=now,
        expires_at=expires_at,
        token_id=caller.token_id,
    )


def _insert(session: Session, yard: Yard, caller: Caller, batch: Batch) -> Job:
    """Store a new batch with the control work that validates it, noted as rung where somebody publishes."""
    session.add(batch)
    session.flush()
    job = Job(kind=JobKind.CONTROL, verb=ControlVerb.VALIDATE, batch_id=batch.id, created_at=batch.created_at)
    if yard.bells.heard:
        rings.note_control(job, now=batch.created_at)
    session.add(job)
    session.flush()
    events.record(
        session,
        now=batch.created_at,
        type="batch.created",
        subject=batch.id,
        actor=caller.actor,
        org_id=batch.org_id,
        data={"pool": batch.pool, "endpoint": batch.endpoint, **_retried(batch)},
    )
    return job


def _retried(batch: Batch) -> dict[str, str]:
    return {"retry_of": batch.retry_of} if batch.retry_of is not None else {}


def _note_seen(yard: Yard, caller: Caller, batches: Sequence[Batch]) -> None:
    """Note that a token knows of its batches, once: a create that looks the same is then another one."""
    unseen = [batch.id for batch in batches if not batch.seen and batch.token_id == caller.token_id]
    if unseen:
        yard.store.run(lambda session: batches_sql.mark_seen(session, unseen))
