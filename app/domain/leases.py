"""Leases: one worker's right to do one job for a while. A lease's id is its fencing token (PROTOCOL 2)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class LeaseState(StrEnum):
    """Where a lease stands. Only `held` is renewed; `held` and `stopping` may hand in and report."""

    HELD = "held"
    STOPPING = "stopping"
    REPORTED = "reported"
    RELEASED = "released"
    EXPIRED = "expired"
    REVOKED = "revoked"


S = LeaseState
TRANSITIONS: Mapping[LeaseState, frozenset[LeaseState]] = {
    S.HELD: frozenset({S.STOPPING, S.REPORTED, S.RELEASED, S.EXPIRED}),
    S.STOPPING: frozenset({S.REPORTED, S.RELEASED, S.REVOKED}),
    S.REPORTED: frozenset(),
    S.RELEASED: frozenset(),
    S.EXPIRED: frozenset(),
    S.REVOKED: frozenset(),
}
LIVE = frozenset({S.HELD, S.STOPPING})


class LeaseVerdict(StrEnum):
    """What a heartbeat's answer says of each lease the worker listed."""

    RENEWED = "renewed"
    STOP = "stop"
    STALE = "stale"


def verdict(state: LeaseState | None) -> LeaseVerdict:
    """Say what the holder of a lease in `state` (None: no such lease of this worker) is to do with it."""
    if state is S.HELD:
        return LeaseVerdict.RENEWED
    return LeaseVerdict.STOP if state is S.STOPPING else LeaseVerdict.STALE


UNSTARTED_CLAIMS = 3
"""Claims in a row that a worker may return unstarted before it is granted nothing for a while."""
HOLD_SECONDS = 5.0
LONGEST_HOLD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClaimEnd:
    """What became of the leases of one claim.

    `returned`: all were given back unstarted, or their worker never listed them. `open`: all are live and in no
    heartbeat yet, so nothing is known of them. `ended_at` is when the last of them ended.
    """

    returned: bool
    open: bool
    ended_at: datetime | None


def held_back_until(newest_first: Iterable[ClaimEnd]) -> datetime | None:
    """Return until when a worker is granted nothing, because it started none of its last claims; None: it may claim.

    The time doubles with each further claim, so a worker that can start nothing costs the queue little.
    """
    ends: list[datetime] = []
    for claim in newest_first:
        if claim.open:
            continue
        if not claim.returned or claim.ended_at is None:
            break
        ends.append(claim.ended_at)
    if len(ends) < UNSTARTED_CLAIMS:
        return None
    seconds = HOLD_SECONDS * 2.0 ** (len(ends) - UNSTARTED_CLAIMS)
    return max(ends) + timedelta(seconds=min(seconds, LONGEST_HOLD_SECONDS))
