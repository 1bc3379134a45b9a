"""What becomes of a row that came back from its runtime: kept, or run again, and how (B-14).

| what came | kept | else it runs again |
|---|---|---|
| an answer, whatever its status | at once | |
| our own refusal (UNSUPPORTED_PARAMETER) | at once; it says nothing of the runtime | |
| a refusal (401, 429, 502-504, no connection) | after `timeout` of them, others being answered | first, or in a while |
| 403 or 404 of a gateway | after `down_seconds` of them | first, or in a while |
| what may be a gateway's: 408, 409, 425, 524, no answer of the endpoint | the fourth time | behind the others |
| 500 | the second time | behind the others |
| cut in mid-row | when it ran alone | behind the others, then alone |
| no answer in time | when others were answered meanwhile, or the second time | behind the others, then alone |

A refused row goes first while the breaker is open, and else in a while. While it is open nothing is kept that may be
the runtime's fault, but for a row that ran alone. What a gateway said is kept, too, once it has said nothing else for
`down_seconds` to any row: then it is what this runtime answers.
"""

from dataclasses import dataclass
from enum import Enum, auto

from app.domain.rows import Blame, Reply, RowErrorCode

MAX_ODD = 4
"""So often a row may be answered by what may be a gateway. While no row is answered, only trials count."""
ALONE_AFTER = 2
"""So many runs may end without an answer before the row runs alone, its neighbours being spared."""


class Came(Enum):
    """What a reply means."""

    ANSWER = auto()
    UNASKED = auto()
    REFUSAL = auto()
    BARRED = auto()
    """403 or 404 that may be a gateway's."""
    ODD = auto()
    """Anything else that may be a gateway's."""
    BREAKDOWN = auto()
    CUT = auto()
    SILENCE = auto()


MAY_BE_A_GATEWAYS = frozenset({Came.BARRED, Came.ODD})
NOT_BEGUN = frozenset({Came.REFUSAL, Came.BARRED})
"""The runtime did no work on the row."""
_SERVERS_FAULT = 500
_PROXYS_TIMEOUT = 524
_OF_ERROR = {
    RowErrorCode.REQUEST_TIMEOUT: Came.SILENCE,
    RowErrorCode.UNSUPPORTED_PARAMETER: Came.UNASKED,
}


class Verdict(Enum):
    """What to do with the row."""

    KEEP = auto()
    FIRST = auto()
    LATER = auto()
    LAST = auto()
    ALONE = auto()


def came(reply: Reply) -> Came:
    """Say what a reply means."""
    if reply.blame is Blame.RUNTIME:
        return Came.REFUSAL
    if reply.blame is Blame.GATEWAY:
        return Came.BARRED
    if reply.blame is Blame.UNCLEAR:
        if reply.error is not None:
            return Came.CUT if reply.error.code is RowErrorCode.RUNTIME_UNAVAILABLE else Came.ODD
        return Came.BREAKDOWN if (reply.status or 0) >= _SERVERS_FAULT and reply.status != _PROXYS_TIMEOUT else Came.ODD
    if reply.error is not None:
        return _OF_ERROR.get(reply.error.code, Came.ANSWER)
    return Came.ANSWER


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a run that gave no answer. Times are seconds of one clock.

    `doubts` counts the row's earlier runs that ended without an answer. `refused_since` is when the refusals of the row
    began. `is_closed` is the breaker after this run; `answered_at` is when the runtime last answered any row;
    `others_hang` says that another row has been there for half its time and more. `is_believed`: nothing else came for
    so long that what may be a gateway's is taken for the runtime's answer.
    """

    now: float
    began_at: float
    timeout: float
    is_closed: bool
    answered_at: float
    others_hang: bool
    is_alone: bool
    is_trial: bool
    doubts: int
    refused_since: float
    is_believed: bool = False


def judge(what: Came, of: Evidence) -> Verdict:
    """Decide by the table above."""
    if what in {Came.ANSWER, Came.UNASKED} or of.is_believed:
        return Verdict.KEEP
    if what is Came.ODD:
        return Verdict.KEEP if (of.is_closed or of.is_trial) and of.doubts + 1 >= MAX_ODD else Verdict.LAST
    if what in NOT_BEGUN:
        if not of.is_closed:
            # The next trial is another row's: this one may be the only one that is refused.
            return Verdict.LAST if of.is_trial else Verdict.FIRST
        waited = of.now - of.refused_since
        return Verdict.KEEP if waited >= of.timeout and of.answered_at > of.refused_since else Verdict.LATER
    if of.is_alone:
        return Verdict.KEEP
    if what is Came.BREAKDOWN and of.is_closed and of.doubts:
        return Verdict.KEEP
    if what is Came.SILENCE and of.is_closed:
        lives = of.answered_at > of.began_at and not of.others_hang
        if lives or of.doubts:
            return Verdict.KEEP
    return Verdict.ALONE if of.doubts + 1 >= ALONE_AFTER else Verdict.LAST
