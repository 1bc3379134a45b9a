"""What a worker's pulls mean for the shards that need their models (B-28)."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache

from sqlmodel import Session

from app.db import workers as workers_sql
from app.db.tables import Batch, Worker
from app.domain.eligibility import Serving
from app.domain.pulls import PullStatus
from app.domain.workers import WorkerState
from app.schemas.pulls import PullInfo
from app.services.context import Yard
from app.services.eligibility import servings, told, told_pulls
from app.services.presence import Hearing, hearing
from app.services.requirements import needs_of

FAILED_SECONDS = 300.0
"""So long a worker that could not fetch a model leaves its shards to others who can; then it may try again."""
Leaves = Callable[[Batch], frozenset[str]]
"""Gives the requirement keys of a batch that a worker is not given now, although it could serve them."""


def leaves_to_others(session: Session, yard: Yard, worker: Worker, now: datetime, *, running: str | None) -> Leaves:
    """Say what a worker leaves alone because of its pulls.

    While it fetches a model it takes no further batch with it, only more of the one that is `running`: who has the
    model may begin at once. Where it could not fetch one, the shards go to those of the pool that can serve them;
    without any they come back to it, and fail in the end with the runtime's words.
    """
    last = _last(worker)
    fetching = {model for model, pull in last.items() if pull.status is PullStatus.PULLING}
    failed = _failed(worker, last, now)
    if not fetching and not failed:
        return lambda _batch: frozenset()

    @cache
    def others() -> list[tuple[tuple[Serving, ...], frozenset[str]]]:
        heard = hearing(session, yard, [worker.pool], now)
        return [
            (servings(other), _failed(other, _last(other), now))
            for other in workers_sql.of_pool(session, worker.pool)
            if other.id != worker.id and _may_take(yard, other, heard)
        ]

    def leaves(batch: Batch) -> frozenset[str]:
        needs = needs_of(batch)
        left = needs.naming(fetching) if batch.id != running else frozenset()
        if lacking := needs.naming(failed):
            served = (needs.served_by(runtimes) - needs.naming(theirs) for runtimes, theirs in others())
            left |= lacking.intersection(frozenset[str]().union(*served))
        return left

    return leaves


def _last(worker: Worker) -> Mapping[str, PullInfo]:
    return {pull.model: pull for pull in told_pulls(worker)}


def _failed(worker: Worker, last: Mapping[str, PullInfo], now: datetime) -> frozenset[str]:
    """Name the models that a worker could not fetch lately and still lacks."""
    since = (now - timedelta(seconds=FAILED_SECONDS)).timestamp()
    return frozenset(
        model
        for model, pull in last.items()
        if pull.status is PullStatus.FAILED
        and pull.at > since
        and not any(serving.alive and serving.serves(model) for serving in servings(worker))
    )


def _may_take(yard: Yard, other: Worker, heard: Hearing) -> bool:
    reachable = not told(other, yard.timing).unreachable(heard.silence(other))
    return reachable and other.state == WorkerState.ACTIVE and other.drain_requested_at is None
