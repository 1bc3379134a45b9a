"""A batch in words, and what its end means to a script."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.cli.errors import ExitCode
from app.cli.figures import duration, moment

Batch = Mapping[str, Any]
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
CONTROL_WORK = frozenset({"validating", "finalizing"})
"""States in which a batch waits for no worker: a reason to wait is trouble then."""
SHOWN_ERRORS = 10
SHOWN_CHARACTERS = 160
"""Of a reason's message."""


def has_ended(batch: Batch) -> bool:
    """Tell whether nothing of it will change any more."""
    return batch["status"] in ENDED


def has_results(batch: Batch) -> bool:
    """Tell whether an ended batch has results: one whose input was refused has none."""
    return batch["status"] != "failed" or bool(batch.get("output_file_id") or batch.get("error_file_id"))


def exit_code(batch: Batch) -> ExitCode:
    """Give what a script is told of an ended batch."""
    if batch["status"] != "completed":
        return ExitCode.ENDED_BADLY
    return ExitCode.ROWS_FAILED if batch["request_counts"]["failed"] else ExitCode.OK


def ours(batch: Batch) -> Mapping[str, Any]:
    """Give gpuyard's own part of the object; empty where a server has none."""
    return batch.get("gpuyard") or {}


def done(batch: Batch) -> int:
    """Count the rows that need nothing any more."""
    counts = batch["request_counts"]
    return int(counts["completed"] + counts["failed"])


def rows(batch: Batch) -> str:
    """Write the rows done and the rows in all."""
    return f"{done(batch)}/{batch['request_counts']['total']}"


def rate(batch: Batch) -> str | None:
    """Write how fast it goes now."""
    found = ours(batch).get("rows_per_second")
    return None if found is None else f"{found:.1f} rows/s"


def eta(batch: Batch) -> str | None:
    """Write how long it will still take."""
    return duration(ours(batch).get("eta_seconds"))


def note(batch: Batch) -> str:
    """Say the one thing worth knowing now: why it waits, how it goes, or why it failed."""
    if batch["status"] == "failed":
        return next(errors(batch), "")
    if damaged := ours(batch).get("damaged"):
        return f"damaged: {damaged}"
    if waits := ours(batch).get("waiting_reason"):
        return f"waits: {waits}"
    left = eta(batch)
    return " · ".join(part for part in (rate(batch), left and f"{left} left") if part)


def progress(batch: Batch) -> str:
    """Write one line of progress."""
    failed = batch["request_counts"]["failed"]
    workers = ours(batch).get("workers")
    parts = (
        str(batch["status"]),
        f"{rows(batch)} rows" if batch["request_counts"]["total"] else "",
        f"{failed} failed" if failed else "",
        f"{workers} worker{'' if workers == 1 else 's'}" if workers else "",
        note(batch),
    )
    return " · ".join(part for part in parts if part)


def ending(batch: Batch) -> str:
    """Say in one line how it ended."""
    counts = batch["request_counts"]
    ended_at = batch.get(f"{batch['status']}_at")
    took = f" in {duration(ended_at - batch['created_at'])}" if ended_at else ""
    never_run = counts["total"] - counts["completed"] - counts["failed"]
    parts = (
        f"{counts['total']} rows",
        f"{counts['completed']} answered",
        f"{counts['failed']} failed" if counts["failed"] else "",
        f"{never_run} not run" if never_run else "",
    )
    return f"{batch['id']} {batch['status']}{took}: " + ", ".join(part for part in parts if part)


def errors(batch: Batch) -> Iterator[str]:
    """Write what was wrong with the input or its first rows, a line each."""
    found = (batch.get("errors") or {}).get("data") or []
    for error in found[:SHOWN_ERRORS]:
        place = f"line {error['line']}: " if error.get("line") else ""
        yield f"{place}{error['message']} ({error['code']})"
    if len(found) > SHOWN_ERRORS:
        yield f"and {len(found) - SHOWN_ERRORS} more"


def unanswered(batch: Batch) -> int:
    """Count the rows that failed, and of an ended batch those that were not run."""
    counts = batch["request_counts"]
    return int(counts["total"] - counts["completed"] if has_ended(batch) else counts["failed"])


def reasons(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Write why rows failed, a line each."""
    for top in found:
        message = top.get("message") or ""
        if len(message) > SHOWN_CHARACTERS:
            message = f"{message[:SHOWN_CHARACTERS]}..."
        yield f"{top['count']} x {top['code']}" + (f": {message}" if message else "")


def fields(batch: Batch) -> dict[str, object]:
    """Give everything there is to show of one batch."""
    yard = ours(batch)
    usage = batch.get("usage")
    states = ("created", "in_progress", "finalizing", "cancelling", *sorted(ENDED), "expires")
    metadata = ", ".join(f"{key}={value}" for key, value in (batch.get("metadata") or {}).items())
    return {
        "batch": batch["id"],
        "status": batch["status"] if yard.get("state") in {None, batch["status"]} else _both(batch),
        "waits": yard.get("waiting_reason"),
        "damaged": yard.get("damaged"),
        "rows": f"{rows(batch)} ({batch['request_counts']['failed']} failed)",
        "off format": _answers(batch, "answers_off_format", "are not the JSON that their rows asked for"),
        "other model": _answers(batch, "answers_other_model", "name another model than their rows"),
        "speed": rate(batch),
        "left": eta(batch),
        "endpoint": batch["endpoint"],
        "model": batch.get("model"),
        "pool": yard.get("pool"),
        "priority": yard.get("priority"),
        "group": yard.get("group"),
        "shards": yard.get("shards"),
        "workers": yard.get("workers"),
        "tokens": f"{usage['input_tokens']} in, {usage['output_tokens']} out" if usage else None,
        "window": batch["completion_window"],
        **{state: moment(batch.get(f"{state}_at")) for state in states if batch.get(f"{state}_at")},
        "input": batch["input_file_id"],
        "output": batch.get("output_file_id"),
        "errors": batch.get("error_file_id"),
        "retry of": yard.get("retry_of"),
        "retried by": ", ".join(yard.get("retried_by") or []) or None,
        "metadata": metadata or None,
    }


def _answers(batch: Batch, name: str, what: str) -> str | None:
    count = ours(batch).get(name)
    return f"{count} answers {what}" if count else None


def _both(batch: Batch) -> str:
    return f"{batch['status']} ({ours(batch)['state']})"
