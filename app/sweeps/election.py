"""Who runs a pass: whoever moves the sweep's row by compare-and-set. Beat only says when (PROTOCOL 6).

Two beats, two control workers and a late tick are harmless: within 0.8 of a period the second one finds the row moved.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

from app.db import sweeps as sweeps_sql
from app.db.store import DatabaseUnavailable
from app.services.context import Yard
from app.sweeps import batch_expiry, heartbeat_sweeper, lease_expiry, requeue, retention

Counts = Mapping[str, int]
SWEEPS: Mapping[str, Callable[[Yard, int], Counts]] = {
    "heartbeat-sweeper": heartbeat_sweeper.run_once,
    "lease-expiry": lease_expiry.run_once,
    "requeue": requeue.run_once,
    "batch-expiry": batch_expiry.run_once,
    "retention": retention.run_once,
}
READS_CONTENTS = frozenset({"retention"})
"""Sweeps whose pass hangs when the store of contents does. Each runs in a thread of its own (app.sweeps.sweeper)."""
ALONE = timedelta(minutes=10)
"""For so long no other process joins a pass of those that has not ended: it would hang, too, or its runner has died."""
LIMIT = 500
JITTER = 0.8
OVERDUE_PERIODS = 3


def run_pass(yard: Yard, name: str, period_seconds: float, runner: str) -> Counts | None:
    """Run a pass of the sweep `name` if it is time and nobody else did; its counts, or None.

    Raises KeyError for a name that is no sweep.
    """
    sweep = SWEEPS[name]
    due = timedelta(seconds=JITTER * period_seconds)
    alone = ALONE if name in READS_CONTENTS else timedelta()
    elected = yard.store.run(
        lambda session: sweeps_sql.elect(
            session, name, now=yard.store.now(session), due=due, runner=runner, alone_for=alone
        )
    )
    if not elected:
        return None
    started = time.monotonic()
    try:
        counts = {**sweep(yard, LIMIT), "milliseconds": round((time.monotonic() - started) * 1000)}
    except Exception:
        with suppress(DatabaseUnavailable):
            yard.store.run(lambda session: sweeps_sql.note_end(session, name, None))
        raise
    yard.store.run(lambda session: sweeps_sql.note_end(session, name, counts))
    return counts


def overdue(yard: Yard, periods: Mapping[str, float]) -> list[str]:
    """Name the sweeps that nobody ran for three periods, whatever the reason: the caller runs them itself."""
    with yard.store.read() as session:
        now = yard.store.now(session)
        last = sweeps_sql.last_runs(session)
    return [
        name
        for name, period in periods.items()
        # Also one that ran in the future: the database's clock was set back since.
        if name not in last or abs((now - last[name]).total_seconds()) > OVERDUE_PERIODS * period
    ]
