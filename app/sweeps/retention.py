"""retention: forget what has lived long enough, in small transactions, as long as a pass may last."""

import time
from collections.abc import Callable, Mapping

from app.services import ended_batches, retention
from app.services.context import Yard

PASS_SECONDS = 5.0
"""A pass that finds more goes on for so long, in a thread of its own (app.sweeps.sweeper)."""
STEPS: Mapping[str, Callable[[Yard, int], int]] = {
    "segments": ended_batches.forget_segments,
    "jobs": ended_batches.forget_jobs,
    "told": ended_batches.forget_told,
    "batches": ended_batches.forget_batches,
    "files": retention.expire_files,
    "contents": retention.collect_contents,
    "file_rows": retention.forget_files,
    "events": retention.forget_events,
    "keys": retention.forget_keys,
    "endpoints": retention.forget_endpoints,
    "workers": retention.forget_workers,
}
"""In turn, so that much of one kind keeps none of another waiting. Each takes up to `limit` and counts what it took."""


def run_once(yard: Yard, limit: int) -> Mapping[str, int]:
    """Forget in steps of `limit` things, until nothing is left or the pass has lasted long enough."""
    counts = dict.fromkeys(STEPS, 0)
    more = list(STEPS)
    until = time.monotonic() + PASS_SECONDS
    retention.collect_leftovers(yard)
    while more:
        took = {name: STEPS[name](yard, limit) for name in more}
        counts |= {name: counts[name] + count for name, count in took.items()}
        more = [name for name, count in took.items() if count >= limit]
        if time.monotonic() >= until:
            break
    return counts
