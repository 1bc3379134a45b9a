"""Pools: the capacity of each worker in them, and the thresholds that keep jobs off a busy host (PL-01, PL-02)."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from app.db import events, exclusive
from app.db import pools as pools_sql
from app.db import workers as workers_sql
from app.db.pools import PoolSet
from app.db.tables import Pool
from app.domain.errors import BadRequest, Conflict, Forbidden, NotFound
from app.domain.org_limits import check_quota
from app.domain.timing import Timing, TimingInvalid
from app.schemas.pools import NewPool, PoolChange, PoolInfo
from app.services.context import Caller, Yard
from app.services.eligibility import rungs
from config.queues import check_pool_name


def listed(yard: Yard, caller: Caller) -> list[PoolInfo]:
    """List the pools the caller may use."""
    with yard.store.read() as session:
        return [shown(yard, pool) for pool in pools_sql.visible(session, caller.org_id)]


def create(yard: Yard, caller: Caller, wanted: NewPool) -> PoolInfo:
    """Make a pool. Raises BadRequest for a bad name or timing, Conflict for a name that is taken, LimitReached."""
    if wanted.shared and not caller.operator:
        raise Forbidden("shared pools are the operator's to make; send shared: false", code="operator_only")
    try:
        check_pool_name(wanted.name)
    except ValueError as error:
        raise BadRequest(str(error), code="invalid_value", param="name") from error

    def work(session: Session) -> PoolInfo:
        exclusive.hold(session, [f"pool:{wanted.name}", f"pools:{caller.org_id}"])
        if session.get(Pool, wanted.name) is not None:
            # Names are queues, so they are unique over all orgs, and this is all that another org learns.
            raise Conflict(f"a pool named {wanted.name!r} is there already", code="name_taken", param="name")
        if not wanted.shared:
            check_quota(yard.limits.org, "pools", pools_sql.count(session, caller.org_id))
        now = yard.store.now(session)
        pool = Pool(name=wanted.name, org_id=None if wanted.shared else caller.org_id, created_at=now)
        _apply(yard, pool, wanted)
        session.add(pool)
        _note(session, pool, "pool.created", now=now, actor=caller.actor)
        return shown(yard, pool)

    return yard.store.run(work)


def change(yard: Yard, caller: Caller, name: str, wanted: PoolChange) -> PoolInfo:
    """Change a pool. Raises NotFound, BadRequest for a bad timing, Forbidden for a shared one that is not yours."""

    def work(session: Session) -> PoolInfo:
        exclusive.hold(session, [f"pool:{name}"])
        pool = pools_sql.usable(session, name, caller.org_id)
        if pool is None:
            raise NotFound(f"no pool {name!r}", code="pool_not_found")
        if pool.org_id is None and not caller.operator:
            raise Forbidden("shared pools are the operator's to change", code="operator_only")
        _apply(yard, pool, wanted)
        session.add(pool)
        _note(session, pool, "pool.changed", now=yard.store.now(session), actor=caller.actor)
        return shown(yard, pool)

    return yard.store.run(work)


def declare(session: Session, yard: Yard, wanted: NewPool, *, default: bool, now: datetime, actor: str) -> None:
    """Make a shared pool as the settings declare it, or change it to that; what they leave out stays as it is."""
    pool = session.get(Pool, wanted.name)
    before = pool.model_dump() if pool is not None else None
    if pool is None:
        pool = Pool(name=wanted.name, created_at=now)
    _apply(yard, pool, wanted)
    pool.is_default = default
    session.add(pool)
    if pool.model_dump() != before:
        _note(session, pool, "pool.changed" if before else "pool.created", now=now, actor=actor)


def shown(yard: Yard, pool: Pool) -> PoolInfo:
    """Put a pool on the wire."""
    read = timing_of(yard, pool).rungs if pool.timing else {}
    return PoolInfo(
        name=pool.name,
        shared=pool.org_id is None,
        default=pool.is_default,
        slots=pool.slots,
        max_load=pool.max_load,
        min_memory_gb=pool.min_memory_gb,
        max_losses=pool.max_losses,
        timing=read,
        out_of_bounds={name: str(value)[:40] for name, value in pool.timing.items() if read.get(name) != value},
        created_at=int(pool.created_at.timestamp()),
    )


def _apply(yard: Yard, pool: Pool, wanted: PoolChange) -> None:
    given = wanted.model_fields_set
    if "slots" in given:
        pool.slots = pool.slots | {str(name): count for name, count in (wanted.slots or {}).items()}
    for name in ("max_load", "min_memory_gb", "max_losses"):
        if name in given:
            setattr(pool, name, getattr(wanted, name))
    if "timing" in given:
        timing = wanted.timing.model_dump() if wanted.timing is not None else {}
        try:
            replace(yard.timing, **timing)
        except TimingInvalid as error:
            raise BadRequest(str(error), code="invalid_value", param="timing") from error
        pool.timing = timing


def timing_of(yard: Yard, pool: Pool | None) -> Timing:
    """Give the rungs that hold in a pool: its own, or the service's."""
    return rungs(yard.timing, pool.timing) if pool is not None else yard.timing


def grace_in(session: Session, yard: Yard, name: str) -> timedelta:
    """Give after how long a silence the workers of a pool count as unreachable."""
    return timing_of(yard, session.get(Pool, name)).grace


def own_ladders(session: Session, yard: Yard) -> dict[str, Timing]:
    """Give the rungs of each pool that has its own."""
    return {pool.name: timing_of(yard, pool) for pool in pools_sql.with_timing(session)}


def lived_ladders(session: Session, yard: Yard) -> dict[str, Timing]:
    """Give the shortest rungs that anybody lives by in each pool with other rungs than the service's.

    Those are the pool's own, and those that its present workers were told before a change.
    """
    found = own_ladders(session, yard)
    for name, stored in workers_sql.told_timings(session):
        found[name] = found.get(name, yard.timing).or_shorter(rungs(yard.timing, stored))
    return found


def by_grace(session: Session, yard: Yard) -> list[tuple[timedelta, PoolSet]]:
    """Sort all pools by their own grace, the shortest first."""
    own = own_ladders(session, yard)
    names = defaultdict[timedelta, list[str]](list)
    for name, timing in own.items():
        names[timing.grace].append(name)
    service = yard.timing.grace
    others = own.keys() - set(names.pop(service, []))
    found = [(grace, PoolSet(named)) for grace, named in names.items()]
    return sorted([(service, PoolSet(others, but=True)), *found], key=lambda each: each[0])


def where(own: Mapping[str, Timing], service: Timing, holds: Callable[[Timing], bool]) -> PoolSet:
    """Name the pools of whose rungs `holds` is true: each pool is asked for itself, and moves no other's threshold.

    `own` are the rungs of the pools that have others than `service`.
    """
    if holds(service):
        return PoolSet([name for name, timing in own.items() if not holds(timing)], but=True)
    return PoolSet([name for name, timing in own.items() if holds(timing)])


def _note(session: Session, pool: Pool, kind: str, *, now: datetime, actor: str) -> None:
    data: dict[str, Any] = {"slots": pool.slots, "max_load": pool.max_load, "min_memory_gb": pool.min_memory_gb}
    session.flush()
    events.record(session, now=now, type=kind, subject=f"pool:{pool.name}", actor=actor, org_id=pool.org_id, data=data)
