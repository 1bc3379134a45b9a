"""Workers: the phase a worker reports and the state the control plane stores as its projection (PH, WS, R-06)."""

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    """What a worker says of itself. Readiness is a claim, not an inference (PH-05)."""

    BOOTING = "booting"
    SETUP = "setup"
    READY = "ready"
    DRAINING = "draining"
    TERMINATING = "terminating"


class WorkerState(StrEnum):
    """What the control plane stores. `stale` and `unreachable` are computed on read and never stored."""

    JOINING = "joining"
    SETTING_UP = "setting_up"
    ACTIVE = "active"
    DRAINING = "draining"
    GONE = "gone"


class Activity(StrEnum):
    """What a worker is busy with, for people (A-02)."""

    IDLE = "idle"
    BUSY = "busy"
    DOWNLOADING_MODEL = "downloading_model"


class Transport(StrEnum):
    """How a worker hears that there is work."""

    CELERY = "celery"
    HTTP = "http"
    CONTROL = "control"


class ByeReason(StrEnum):
    """Why a worker that could still speak went away (BY-02)."""

    IDLE = "idle"
    SIGNAL = "signal"
    DRAIN = "drain"
    HELLO_FAILED = "hello_failed"


P = Phase
PHASES: Mapping[Phase, frozenset[Phase]] = {
    P.BOOTING: frozenset({P.SETUP, P.TERMINATING}),
    P.SETUP: frozenset({P.READY, P.DRAINING, P.TERMINATING}),
    P.READY: frozenset({P.SETUP, P.DRAINING, P.TERMINATING}),
    P.DRAINING: frozenset({P.TERMINATING}),
    P.TERMINATING: frozenset(),
}
"""A worker's own moves (PH-07): who drains is never ready again, and who was dismissed terminates at once."""

S = WorkerState
TRANSITIONS: Mapping[WorkerState, frozenset[WorkerState]] = {
    S.JOINING: frozenset({S.SETTING_UP, S.ACTIVE, S.DRAINING, S.GONE}),
    S.SETTING_UP: frozenset({S.ACTIVE, S.DRAINING, S.GONE}),
    S.ACTIVE: frozenset({S.SETTING_UP, S.DRAINING, S.GONE}),
    S.DRAINING: frozenset({S.GONE, S.JOINING}),
    S.GONE: frozenset({S.JOINING}),
}
"""DRAINING and GONE lead back to JOINING by a new hello of the same install only, never by a heartbeat."""

_PROJECTION: Mapping[Phase, WorkerState] = {
    Phase.SETUP: S.SETTING_UP,
    Phase.READY: S.ACTIVE,
    Phase.DRAINING: S.DRAINING,
    Phase.TERMINATING: S.DRAINING,
}


def project(state: WorkerState, phase: Phase | None) -> WorkerState:
    """Give the stored state after a heartbeat with `phase`; it never widens what the table allows (PH-04).

    A worker that reports no phase is an older one: heard from means active (A-19).
    """
    if state in {S.DRAINING, S.GONE} or phase is Phase.BOOTING:
        return state
    wanted = _PROJECTION[phase] if phase is not None else S.ACTIVE
    return wanted if wanted is state or wanted in TRANSITIONS[state] else state
