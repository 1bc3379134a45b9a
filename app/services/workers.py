"""A worker's life as the control plane sees it: hello, heartbeat, bye (PROTOCOL 2, 3; LS-01 to LS-05)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session
from ulid import ULID

from app.db import events, locks
from app.db import leases as leases_sql
from app.db import workers as workers_sql
from app.db.tables import Pool, Worker
from app.domain.errors import BadRequest, Conflict, Forbidden
from app.domain.leases import LeaseState, LeaseVerdict, verdict
from app.domain.timing import Timing
from app.domain.workers import Phase, Transport, WorkerState, project
from app.schemas.segments import Progress
from app.schemas.workers import (
    PROTOCOL,
    Bye,
    Hello,
    RuntimeInfo,
    TimingInfo,
    Welcome,
)
from app.services.calling import checked_worker
from app.services.claims import has_work
from app.services.context import Caller, Yard
from app.services.eligibility import pool_slots, told
from app.services.leases import end_silenced
from app.services.pools import by_grace, timing_of
from app.services.presence import hearing
from app.services.sightings import of_worker, record


class ProtocolMismatch(BadRequest):
    """The worker speaks another version of the wire."""

    status = 426


def register(yard: Yard, caller: Caller, hello: Hello) -> Welcome:
    """Take a worker in, or take it back after a restart.

    The same install with a new boot supersedes its older process; its live leases that `held` does not name end at once
    and count as losses (R-25). Raises Conflict `name_taken` while another install of that name is within its grace,
    `superseded` while a later start of its own is, BadRequest `unknown_pool`, Forbidden for a name that is not the
    token's, ProtocolMismatch.
    """
    if hello.protocol != PROTOCOL:
        raise ProtocolMismatch(
            f"this control plane speaks worker protocol {PROTOCOL}, the worker {hello.protocol}: "
            "install the same gpuyard on both sides",
            code="protocol_mismatch",
        )
    if caller.single_worker and not hello.named:
        hello = hello.model_copy(update={"name": caller.name})
    if caller.single_worker and hello.name != caller.name:
        raise Forbidden(f"this key is for the worker {caller.name!r} alone, not {hello.name!r}", code="wrong_name")
    if hello.transport is Transport.CONTROL and not caller.in_process:
        raise Forbidden("control workers are part of the service and say hello in process", code="control_worker")
    worker, now, before = _taken_in(yard, caller, hello)
    verdicts = _settle_leases(yard, worker, before, hello.held)
    with yard.store.read() as session:
        work = hello.phase is Phase.READY and has_work(session, yard, worker, now)
    return Welcome(
        worker_id=worker.id,
        name=worker.name,
        pool=worker.pool,
        timing=timing_info(told(worker, yard.timing)),
        leases=verdicts,
        segment_seconds=yard.limits.segment_seconds,
        slots=worker.slots,
        work=work,
        drain=worker.drain_requested_at is not None,
    )


def timing_info(timing: Timing) -> TimingInfo:
    """Give the ladder's rungs as they travel."""
    return TimingInfo(
        renew_seconds=timing.renew_seconds,
        grace_seconds=timing.grace_seconds,
        toleration_seconds=timing.toleration_seconds,
        self_stop_seconds=timing.self_stop_seconds,
    )


def bye(yard: Yard, caller: Caller, worker_id: str, word: Bye) -> None:
    """Take a worker's last word: state `gone`. The sweep takes its live leases at once, but for the spooled (R-05)."""

    def work(session: Session) -> None:
        worker = checked_worker(session, caller, worker_id, word.boot_id, lock=True)
        now = yard.store.now(session)
        leases_sql.mark_spooled(session, locks.leases(session, word.spooled, worker_id=worker.id))
        if worker.state == WorkerState.GONE:
            return
        worker.state, worker.gone_at, worker.last_seen_at = WorkerState.GONE, now, now
        session.add(worker)
        data = {"reason": word.reason.value, "inflight_abandoned": word.inflight_abandoned}
        record(session, worker, "worker.gone", now, data)

    yard.store.run(work)


def progress(yard: Yard, caller: Caller, report: Progress, *, boot_id: str | None = None) -> None:
    """Keep a worker's live counts, for people only (R-32)."""

    def work(session: Session) -> None:
        worker = checked_worker(session, caller, report.worker_id, boot_id, lock=True)
        worker.progress = report.model_dump(mode="json", exclude={"worker_id"})
        worker.last_seen_at = yard.store.now(session)
        session.add(worker)

    yard.store.run(work)


def mark_offline(yard: Yard, limit: int) -> int:
    """Store that workers have been silent for longer than the grace; one event a step (R-06). Count them.

    What the service could not hear itself is no silence (PROTOCOL 4).
    `limit` bounds the workers of each grace: many in one org's pool keep nobody else's waiting.
    """

    def work(session: Session) -> int:
        now = yard.store.now(session)
        unseen = [
            worker
            for grace, of in by_grace(session, yard)
            for worker in workers_sql.silent_since(session, now - grace, limit, of=of)
        ]
        heard = hearing(session, yard, [worker.pool for worker in unseen], now)
        silent = [worker for worker in unseen if told(worker, yard.timing).unreachable(heard.silence(worker))]
        for worker in silent:
            worker.offline_at = now
            session.add(worker)
        events.record_all(session, [_went_offline(worker, now) for worker in silent], now=now)
        return len(silent)

    return yard.store.run(work)


def _went_offline(worker: Worker, now: datetime) -> events.Recorded:
    silent = int((now - worker.last_seen_at).total_seconds())
    return of_worker(worker, "worker.offline", {"silent_seconds": silent})


def _taken_in(yard: Yard, caller: Caller, hello: Hello) -> tuple[Worker, datetime, set[int]]:
    try:
        return yard.store.run(lambda session: _take_in(session, yard, caller, hello))
    except IntegrityError:
        # Two first hellos of one name: the other one made the row, so this one finds it.
        return yard.store.run(lambda session: _take_in(session, yard, caller, hello))


def _take_in(session: Session, yard: Yard, caller: Caller, hello: Hello) -> tuple[Worker, datetime, set[int]]:
    """Write the worker's row; gives it, the time, and the leases that were live under the boot before.

    A hello may come twice, or so late that its process has had another one answered and works already (a frozen API
    that thaws): that is no restart.
    """
    pool = session.get(Pool, hello.pool)
    open_to = pool is not None and (pool.org_id == caller.org_id or (pool.org_id is None and caller.operator))
    if not open_to and hello.transport is not Transport.CONTROL:
        raise BadRequest(
            f"no pool {hello.pool!r} is open to this key. Create it: gpuyard pool create {hello.pool}",
            code="unknown_pool",
            param="pool",
        )
    worker = workers_sql.lock_by_name(session, caller.org_id, hello.name)
    now = yard.store.now(session)
    if worker is None:
        worker = _new(caller, hello, now)
    elif _changes_sides(worker, hello):
        raise Conflict(
            f"the name {hello.name} is taken by a worker with transport {worker.transport}: "
            "choose another one (--name)",
            code="name_taken",
        )
    elif _held_by_another(session, yard, worker, hello, now):
        raise Conflict(
            f"a worker named {hello.name} is alive on {worker.hostname or 'another machine'}: "
            "give this one another name (--name), or stop that one first",
            code="name_taken",
        )
    elif _started_before(session, yard, worker, hello, now):
        raise Conflict(
            f"a later start of worker {hello.name} is alive on {worker.hostname or 'its machine'}: this process is "
            "superseded. Two machines with copies of one state directory need one each (GPUYARD_STATE_DIR)",
            code="superseded",
        )
    is_restart = worker.boot_id != hello.boot_id
    if is_restart:
        worker.install_id, worker.boot_id, worker.starts = hello.install_id, hello.boot_id, hello.starts
        worker.hello_at, worker.last_beat_at = now, None
        worker.timing = timing_of(yard, pool).rungs
        worker.drain_requested_at = worker.reset_requested_at = worker.command_at = None
    worker.pool, worker.transport, worker.hostname = hello.pool, hello.transport, hello.hostname
    worker.slots = pool_slots(pool, otherwise=hello.slots)
    worker.max_concurrent_prompts = hello.max_concurrent_prompts
    worker.tags, worker.versions = hello.tags, hello.versions
    worker.runtimes = _dump(hello.runtimes)
    worker.sample = hello.sample.model_dump(mode="json") if hello.sample is not None else None
    worker.pulls = []
    worker.row_by_row = hello.row_by_row
    worker.phase = hello.phase
    worker.state = project(WorkerState.JOINING, hello.phase)
    worker.last_seen_at = now
    worker.offline_at = worker.gone_at = None
    session.add(worker)
    record(session, worker, "worker.hello", now, {"boot_id": hello.boot_id, "pool": hello.pool})
    session.flush()
    live = leases_sql.live_of_worker(session, worker.id)
    worker.holds = bool(live)
    # Of a hello that was said before: what this very process has claimed since is its own.
    return worker, now, live if is_restart else leases_sql.granted_before(session, live, worker.hello_at)


def _new(caller: Caller, hello: Hello, now: datetime) -> Worker:
    return Worker(
        id=f"wrk_{ULID()}",
        org_id=caller.org_id,
        name=hello.name,
        install_id=hello.install_id,
        boot_id="",  # none before this one
        pool=hello.pool,
        created_at=now,
        hello_at=now,
        last_seen_at=now,
    )


def _changes_sides(worker: Worker, hello: Hello) -> bool:
    """Whether a control worker would become a GPU worker, or the other way round, and have the leases of its row."""
    return (worker.transport == Transport.CONTROL) != (hello.transport is Transport.CONTROL)


def _held_by_another(session: Session, yard: Yard, worker: Worker, hello: Hello, now: datetime) -> bool:
    return worker.install_id != hello.install_id and _is_heard(session, yard, worker, now)


def _started_before(session: Session, yard: Yard, worker: Worker, hello: Hello, now: datetime) -> bool:
    """Whether a process speaks that has died since: its hello lay in a frozen API while the next one began to work.

    A count that was put back with a machine's snapshot goes on once the worker of that name is silent.
    """
    is_older = worker.install_id == hello.install_id and 0 < hello.starts < worker.starts
    return is_older and _is_heard(session, yard, worker, now)


def _is_heard(session: Session, yard: Yard, worker: Worker, now: datetime) -> bool:
    """Whether the worker is within its grace, and was heard since the database was restored, if it ever was.

    What a backup calls alive may be lost, state folder and all, and nobody would come back for its name.
    """
    if worker.state == WorkerState.GONE:
        return False
    restored_at = events.last_at(session, "service", "service.restored")
    if restored_at is not None and worker.last_seen_at < restored_at:
        return False
    return not told(worker, yard.timing).unreachable(hearing(session, yard, [worker.pool], now).silence(worker))


def _settle_leases(yard: Yard, worker: Worker, before: set[int], held: Sequence[int]) -> dict[int, LeaseVerdict]:
    """Renew what the worker still holds, end the others of `before` as lost; a verdict for each id of `held`.

    Only leases that were live when the hello was taken: a slow hello must not end what a later boot has claimed.
    """

    def work(session: Session) -> dict[int, LeaseVerdict]:
        locked = locks.leases(session, held, worker_id=worker.id)
        now = yard.store.now(session)
        leases_sql.renew_if_held(session, locked, now=now, until=told(worker, yard.timing).lease_end(now))
        return {i: verdict(LeaseState(locked[i].state) if i in locked else None) for i in held}

    verdicts = yard.store.run(work)
    for lease_id in sorted(before - set(held)):
        end_silenced(yard, lease_id, reason="it was started again without it")
    return verdicts


def _dump(runtimes: Sequence[RuntimeInfo]) -> list[dict[str, object]]:
    return [runtime.model_dump(mode="json") for runtime in runtimes]
