"""What a batch's first rows say of all of it: whether they failed alike, and what its owner is told then (B-14)."""

import json
from collections.abc import Mapping
from typing import Any

from app.domain.quoting import printable
from app.domain.rows import Reply

CODE = "first_rows_failed"
MAX_ROWS = 1000
MAX_KIND = 200
MAX_MESSAGE = 500


def kind_of(reply: Reply) -> str:
    """Name the kind of a failed row: two failures are alike when their kinds are equal.

    That is gpuyard's own code, or the HTTP status with the type and the code of the error in its body. Messages do not
    count: they name lengths and positions that differ from row to row.
    """
    if reply.error is not None:
        return reply.error.code.value
    error = _error(reply)
    words = (str(error[key]) for key in ("type", "code") if error.get(key) is not None)
    return printable(" ".join([str(reply.status), *words]))[:MAX_KIND]


def said(reply: Reply) -> str:
    """Give what the row was answered, in short."""
    text = reply.error.message if reply.error is not None else str(_error(reply).get("message") or "")
    return printable(text)[:MAX_MESSAGE]


def failed_alike(*, rows: int, kind: str, message: str) -> str:
    """Say what happened, while the batch is still being stopped."""
    return f"The first {rows} rows that ran all failed alike, with {kind}" + (f": {message}" if message else ".")


def way_out(*, not_run: int, total: int) -> str:
    """Say what is left of it, once that is counted, and what to do."""
    return (
        f" So {not_run} of {total} rows were not run. Mend the rows and send the batch again, or send it with "
        "canary_rows: 0 to run all of them whatever the first ones bring."
    )


def _error(reply: Reply) -> Mapping[str, Any]:
    try:
        body = json.loads(reply.body or b"null")
    except (ValueError, RecursionError):
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}
