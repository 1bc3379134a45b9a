"""The bell by HTTP: what a poll notes, what it answers, and whom of those that wait there is news for (PROTOCOL 6).

A poll never grants and renews no lease. It counts as heard of, and what it says of the worker's phase counts like a
heartbeat's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlmodel import Session

from app.db import cautious as cautious_sql
from app.db import claims as claims_sql
from app.db import jobs as jobs_sql
from app.db import polls as polls_sql
from app.db.tables import Worker
from app.db.types import to_ms
from app.domain.polls import Bell, Standing, Told, news
from app.domain.workers import WorkerState, project
from app.schemas.polls import Poll, PollAnswer, PolledMessage
from app.services.calling import checked_worker
from app.services.claims import first_work
from app.services.context import Caller, Yard
from app.services.sightings import note_seen

COMMAND_SECONDS = 10
"""How far back a process looks for commands that others took; older ones came with a heartbeat."""
WINDOW = 16
"""Batches of a pool that one look reads, and workers that it wakes, at most."""
MOST = 1000
"""Commands and stops that one look reads at most; a heartbeat's answer brings the rest."""
MOST_STOPPING = 64


@dataclass(frozen=True, slots=True)
class PoolNews:
    """Work that waits in a pool. `mark` changes when more was rung; `wanted`: as many workers could start on it."""

    mark: tuple[tuple[str, int], ...]
    wanted: int


@dataclass(frozen=True, slots=True)
class News:
    """What may concern who waits: commands by worker (database milliseconds), stops by worker, work by pool."""

    commands: Mapping[str, int] = field(default_factory=dict)
    stopping: Mapping[str, Collection[str]] = field(default_factory=dict)
    work: Mapping[str, PoolNews] = field(default_factory=dict)


def note(yard: Yard, caller: Caller, poll: Poll) -> str:
    """Note that a worker was heard of, and give its pool. Raises NotFound, and Conflict `superseded`.

    Nothing is written for one of which nothing new is said and that was heard of within half a heartbeat.
    """
    with yard.store.read() as session:
        worker = checked_worker(session, caller, poll.worker_id, poll.boot_id, lock=False)
        lately = yard.store.now(session) - timedelta(seconds=yard.timing.renew_seconds / 2)
        if worker.last_seen_at > lately and worker.offline_at is None and _says_nothing_new(worker, poll):
            return worker.pool

    def work(session: Session) -> str:
        worker = checked_worker(session, caller, poll.worker_id, poll.boot_id, lock=True)
        note_seen(session, worker, poll.phase, poll.current_invocations, yard.store.now(session))
        return worker.pool

    return yard.store.run(work)


def look(yard: Yard, caller: Caller, poll: Poll, told: Told) -> PollAnswer | None:
    """Give what the worker does not know yet; None when there is nothing. Raises as `note` does."""
    with yard.store.read() as session:
        worker = checked_worker(session, caller, poll.worker_id, poll.boot_id, lock=False)
        messages, after = news(told, _standing(session, yard, worker, asks_for_work=poll.free > 0))
    if not messages:
        return None
    return PollAnswer(
        cursor=after.cursor,
        messages=[PolledMessage(kind=message.kind.value, batch_id=message.batch_id) for message in messages],
    )


def whats_new(yard: Yard, pools: Collection[str]) -> News:
    """Read what may concern workers of these pools that wait. Its cost does not grow with their number."""
    with yard.store.read() as session:
        now = yard.store.now(session)
        commands = polls_sql.commanded(session, after=now - timedelta(seconds=COMMAND_SECONDS), limit=MOST)
        stopping: dict[str, set[str]] = {}
        for worker_id, batch_id in polls_sql.stopping(session, limit=MOST):
            stopping.setdefault(worker_id, set()).add(batch_id)
        work = {}
        for pool in pools:
            careful = [batch for _, batch in cautious_sql.waiting(session, pool, now)]
            found = [*careful, *claims_sql.waiting_batches(session, pool, now, WINDOW)]
            waiting = list({batch.id: batch for batch in found}.values())
            wanted = sum(jobs_sql.queued_shards(session, batch.id, WINDOW) for batch in waiting)
            if waiting:
                work[pool] = PoolNews(tuple((batch.id, batch.ring_no) for batch in waiting), min(wanted, WINDOW))
    return News({worker_id: to_ms(at) for worker_id, at in commands}, stopping, work)


def _says_nothing_new(worker: Worker, poll: Poll) -> bool:
    phase = poll.phase.value if poll.phase is not None else None
    state = project(WorkerState(worker.state), poll.phase)
    return (worker.phase, worker.state, worker.current_invocations) == (phase, state, poll.current_invocations)


def _standing(session: Session, yard: Yard, worker: Worker, *, asks_for_work: bool) -> Standing:
    now = yard.store.now(session)
    batch = first_work(session, yard, worker, now) if asks_for_work else None
    stopping = polls_sql.stopping(session, worker_id=worker.id, limit=MOST_STOPPING)
    return Standing(
        now=to_ms(now),
        drain_at=to_ms(worker.drain_requested_at) if worker.drain_requested_at is not None else None,
        reset_at=to_ms(worker.reset_requested_at) if worker.reset_requested_at is not None else None,
        stopping=tuple(sorted(batch_id for _, batch_id in stopping)),
        bell=Bell(batch.id, batch.ring_no) if batch is not None else None,
    )
