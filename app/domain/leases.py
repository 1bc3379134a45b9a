"""Leases: one worker's right to do one job for a while. A lease's id is its fencing token (PROTOCOL 2)."""

from collections.abc import Mapping
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
