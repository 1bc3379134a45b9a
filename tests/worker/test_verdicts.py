"""What becomes of a row that came back: each line of the table, and what turns it over."""

from dataclasses import replace

import pytest

from app.domain.rows import Blame, Reply, RowError, RowErrorCode
from app.worker.verdicts import Came, Evidence, Verdict, came, judge

TIMEOUT = 300.0
PLAIN = Evidence(
    now=1000.0,
    began_at=990.0,
    timeout=TIMEOUT,
    is_closed=True,
    answered_at=float("-inf"),
    others_hang=False,
    is_alone=False,
    is_trial=False,
    doubts=0,
    refused_since=990.0,
)
LATE = RowError(RowErrorCode.REQUEST_TIMEOUT, "late")
AWAY = RowError(RowErrorCode.RUNTIME_UNAVAILABLE, "away")


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (Reply(status=200, body=b"{}"), Came.ANSWER),
        (Reply(status=400, body=b"{}"), Came.ANSWER),
        (Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, "no JSON")), Came.ANSWER),
        (Reply(error=AWAY), Came.ANSWER),
        (Reply(error=AWAY, blame=Blame.RUNTIME), Came.REFUSAL),
        (Reply(status=503, body=b"{}", blame=Blame.RUNTIME), Came.REFUSAL),
        (Reply(error=AWAY, blame=Blame.UNCLEAR), Came.CUT),
        (Reply(status=500, body=b"{}", blame=Blame.UNCLEAR), Came.BREAKDOWN),
        (Reply(error=LATE), Came.SILENCE),
        (Reply(error=RowError(RowErrorCode.UNSUPPORTED_PARAMETER, "no images")), Came.UNASKED),
    ],
)
def test_a_reply_means(reply: Reply, what: Came) -> None:
    assert came(reply) is what


@pytest.mark.parametrize(
    ("what", "evidence", "verdict"),
    [
        (Came.ANSWER, {}, Verdict.KEEP),
        (Came.UNASKED, {"is_closed": False, "is_trial": True}, Verdict.KEEP),
        (Came.REFUSAL, {}, Verdict.LATER),
        (Came.REFUSAL, {"refused_since": 600.0}, Verdict.LATER),  # nobody was answered either
        (Came.REFUSAL, {"refused_since": 600.0, "answered_at": 999.0}, Verdict.KEEP),
        (Came.REFUSAL, {"refused_since": 800.0, "answered_at": 999.0}, Verdict.LATER),
        (Came.REFUSAL, {"refused_since": 600.0, "answered_at": 999.0, "is_closed": False}, Verdict.FIRST),
        (Came.REFUSAL, {"is_closed": False, "is_trial": True}, Verdict.LAST),
        (Came.BREAKDOWN, {}, Verdict.LAST),
        (Came.BREAKDOWN, {"doubts": 1}, Verdict.KEEP),
        (Came.BREAKDOWN, {"doubts": 1, "is_closed": False}, Verdict.ALONE),
        (Came.BREAKDOWN, {"is_alone": True, "is_closed": False}, Verdict.KEEP),
        (Came.CUT, {"answered_at": 999.0}, Verdict.LAST),
        (Came.CUT, {"doubts": 1, "answered_at": 999.0}, Verdict.ALONE),
        (Came.CUT, {"doubts": 2, "is_alone": True}, Verdict.KEEP),
        (Came.SILENCE, {"answered_at": 995.0}, Verdict.KEEP),
        (Came.SILENCE, {"answered_at": 995.0, "others_hang": True}, Verdict.LAST),
        (Came.SILENCE, {"answered_at": 985.0}, Verdict.LAST),
        (Came.SILENCE, {"answered_at": 985.0, "doubts": 1}, Verdict.KEEP),
        (Came.SILENCE, {"answered_at": 995.0, "is_closed": False}, Verdict.LAST),
        (Came.SILENCE, {"answered_at": 995.0, "is_closed": False, "doubts": 5}, Verdict.ALONE),
    ],
)
def test_a_row_is_judged(what: Came, evidence: dict[str, object], verdict: Verdict) -> None:
    assert judge(what, replace(PLAIN, **evidence)) is verdict  # type: ignore[arg-type]
