"""Heartbeats: each renews the leases it lists, and is answered after the commit that holds the renewal (PROTOCOL 2).

Those of many workers that come at once are taken together: two transactions and a look for work, however many they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from sqlmodel import Session

from app.db import cautious as cautious_sql
from app.db import claims as claims_sql
from app.db import leases as leases_sql
from app.db import locks
from app.db import workers as workers_sql
from app.db.tables import Lease, Pool, Worker
from app.db.types import from_ms, to_ms
from app.domain.errors import Conflict, Refusal
from app.domain.leases import LIVE, LeaseState, LeaseVerdict, verdict
from app.schemas.workers import Heartbeat, HeartbeatAnswer
from app.services import models
from app.services.calling import checked
from app.services.claims import has_work
from app.services.context import Caller, Yard
from app.services.eligibility import pool_slots, told
from app.services.leases import end_ghost
from app.services.moves import one_by_one
from app.services.sightings import note_seen


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker's beat, as it came in."""

    caller: Caller
    worker_id: str
    said: Heartbeat


Answers = dict[str, HeartbeatAnswer | Refusal]
"""By worker: what each is told, or why it is told nothing."""


def heartbeat(yard: Yard, caller: Caller, worker_id: str, said: Heartbeat) -> HeartbeatAnswer:
    """Take one beat. Raises NotFound, Conflict `superseded`."""
    answer = heartbeats(yard, [Beat(caller, worker_id, said)])[worker_id]
    if isinstance(answer, Refusal):
        raise answer
    return answer


def heartbeats(yard: Yard, beats: Sequence[Beat]) -> Answers:
    """Take beats together, one a worker at most. One that is refused costs the others nothing.

    Two transactions: the leases', then the workers' own rows (PROTOCOL 1).
    """
    renewed = yard.store.run(lambda session: _renew(session, yard, beats))
    one_by_one(renewed.ghosts, partial(end_ghost, yard))
    heard = [beat for beat in beats if beat.worker_id in renewed.verdicts]
    noted = yard.store.run(lambda session: _note(session, yard, heard))
    refused = renewed.refused | noted.refused
    if noted.looked:
        models.answered(yard, noted.looked)
    with yard.store.read() as session:
        wanted = _with_work(session, yard, list(noted.workers.values()), noted.now)
    answers: Answers = {
        worker_id: HeartbeatAnswer(
            leases=dict(renewed.verdicts[worker_id]),
            at=to_ms(noted.now),
            work=worker_id in wanted,
            drain=worker.drain_requested_at is not None,
            reset_backoff=str(to_ms(worker.reset_requested_at)) if worker.reset_requested_at is not None else None,
            slots=worker.slots,
            look=_look(worker),
        )
        for worker_id, worker in noted.workers.items()
    }
    return answers | refused


@dataclass(slots=True)
class _Renewed:
    """What the first transaction did: verdicts by worker and lease, leases to end, and who is refused."""

    verdicts: dict[str, Mapping[int, LeaseVerdict]] = field(default_factory=dict)
    ghosts: list[int] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)


@dataclass(slots=True)
class _Noted:
    """What the second one did."""

    now: datetime
    workers: dict[str, Worker] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    looked: set[str] = field(default_factory=set)
    """Pools of workers that have listed their models again, as they were asked."""


def _renew(session: Session, yard: Yard, beats: Sequence[Beat]) -> _Renewed:
    done = _Renewed()
    known = _checked(session, beats, done.refused)
    live = leases_sql.live_of_workers(session, known)
    listed = {beat.worker_id: set(beat.said.leases) for beat in beats if beat.worker_id in known}
    wanted = {lease_id for worker_id in known for lease_id in live[worker_id] | listed[worker_id]}
    locked = locks.leases_of(session, wanted, known)
    # Asked again under the locks: a hello that came between has settled these leases, or will after this commit.
    known = _checked(session, [beat for beat in beats if beat.worker_id in known], done.refused)
    now = yard.store.now(session)
    renewed = _renewed(session, yard, known, listed, locked, now)
    unstarted: set[int] = set()
    still: set[int] = set()
    for beat in beats:
        if beat.worker_id not in known:
            continue
        mine = {i: lease for i, lease in locked.items() if lease.worker_id == beat.worker_id}
        done.verdicts[beat.worker_id] = {
            i: LeaseVerdict.RENEWED
            if i in mine and i in renewed
            else verdict(LeaseState(mine[i].state) if i in mine else None)
            for i in listed[beat.worker_id]
        }
        here = {i for i in listed[beat.worker_id] if i in mine and mine[i].state in LIVE}
        still |= here
        unstarted |= here & set(beat.said.unstarted)
        unlisted = [
            mine[i]
            for i in sorted(live[beat.worker_id] - listed[beat.worker_id])
            if i in mine and mine[i].claim_request not in beat.said.claiming
        ]
        done.ghosts += _ghosts(session, _begun_after(beat, known[beat.worker_id]), unlisted)
    leases_sql.mark_unstarted(session, unstarted, unstarted=True)
    leases_sql.mark_unstarted(session, still - unstarted, unstarted=False)
    return done


def _checked(session: Session, beats: Sequence[Beat], refused: dict[str, Refusal]) -> dict[str, Worker]:
    """Read the workers, and give those whose beats count; why the others' do not goes into `refused`."""
    workers = workers_sql.by_ids(session, [beat.worker_id for beat in beats])
    found: dict[str, Worker] = {}
    for beat in beats:
        try:
            found[beat.worker_id] = checked(beat.caller, workers.get(beat.worker_id), beat.worker_id, beat.said.boot_id)
        except Refusal as error:
            refused[beat.worker_id] = error
    return found


def _renewed(
    session: Session,
    yard: Yard,
    known: Mapping[str, Worker],
    listed: Mapping[str, set[int]],
    locked: Mapping[int, Lease],
    now: datetime,
) -> set[int]:
    """Renew what is listed, to the end that each worker's own rungs say: one statement for all of equal rungs."""
    until: dict[datetime, set[int]] = {}
    for worker_id, worker in known.items():
        mine = {i for i in listed[worker_id] if i in locked and locked[i].worker_id == worker_id}
        until.setdefault(told(worker, yard.timing).lease_end(now), set()).update(mine)
    return {i for end, ids in until.items() for i in leases_sql.renew_if_held(session, ids, now=now, until=end)}


def _begun_after(beat: Beat, worker: Worker) -> int | None:
    """Give a time (database milliseconds) after which a beat was begun for sure; None: nobody knows.

    Its worker says which answer it had heard by then. When beats come tells nothing: an API that was frozen finds many
    on its sockets, all of the time before it thawed. Of an older worker, which says nothing, the beat before is taken.
    """
    if beat.said.after is not None:
        return beat.said.after
    return to_ms(worker.last_beat_at) if worker.last_beat_at is not None else None


def _ghosts(session: Session, begun_after: int | None, unlisted: Sequence[Lease]) -> list[int]:
    """Count a beat that did not list leases, where it was begun after their grant; name those missed twice running.

    Source: PROTOCOL 2.
    """
    found: list[int] = []
    for lease in unlisted:
        if lease.state != LeaseState.HELD or begun_after is None or to_ms(lease.granted_at) >= begun_after:
            continue
        lease.missed_beats += 1
        session.add(lease)
        if lease.missed_beats >= leases_sql.GHOST_BEATS and lease.id is not None:
            found.append(lease.id)
    return found


def _note(session: Session, yard: Yard, beats: Sequence[Beat]) -> _Noted:
    """Write what beats say onto their workers' rows."""
    locked = locks.workers(session, [beat.worker_id for beat in beats])
    noted = _Noted(yard.store.now(session))
    holders = leases_sql.holders(session, locked)
    for beat in beats:
        worker = locked.get(beat.worker_id)
        if worker is None or worker.boot_id != beat.said.boot_id:
            message = "this worker was started again; this process is superseded"
            noted.refused[beat.worker_id] = Conflict(message, code="superseded")
            continue
        note_seen(session, worker, beat.said.phase, beat.said.current_invocations, noted.now)
        worker.activity = beat.said.activity
        if beat.said.sample is not None:
            worker.sample = beat.said.sample.model_dump(mode="json")
        if beat.said.runtimes is not None:
            worker.runtimes = [runtime.model_dump(mode="json") for runtime in beat.said.runtimes]
        if beat.said.looked is not None:
            _note_looked(noted, worker, beat.said.looked)
        worker.slots = pool_slots(session.get(Pool, worker.pool), otherwise=worker.slots)
        worker.last_beat_at, worker.holds = noted.now, worker.id in holders
        worker.timing = worker.timing or told(worker, yard.timing).rungs  # it said hello before they were stored
        session.add(worker)
        noted.workers[worker.id] = worker
    return noted


def _note_looked(noted: _Noted, worker: Worker, looked: int) -> None:
    looked_at = from_ms(min(looked, to_ms(noted.now)))
    if worker.looked_at is None or worker.looked_at < looked_at:
        worker.looked_at = looked_at
        if looked:
            noted.looked.add(worker.pool)


def _look(worker: Worker) -> int | None:
    """Give the request to list models again that a worker has not done yet; None when there is none."""
    requested_at, looked_at = worker.look_requested_at, worker.looked_at
    if requested_at is None or looked_at is None or looked_at >= requested_at:
        return None
    return to_ms(requested_at)


def _with_work(session: Session, yard: Yard, workers: Sequence[Worker], now: datetime) -> set[str]:
    """Name the workers for which their pool has something. Where nothing waits, one look answers for a whole pool."""
    careful = cautious_sql.are_there(session)
    waits = {
        pool: careful or bool(claims_sql.waiting_batches(session, pool, now, 1))
        for pool in {worker.pool for worker in workers}
    }
    return {worker.id for worker in workers if waits[worker.pool] and has_work(session, yard, worker, now)}
