"""Is this process able to serve? Each part is asked, and says why not."""

import logging
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from app.blobs.store import BlobError, BlobFull
from app.db import open_transactions, readiness, schema
from app.db.open_transactions import OpenTransaction
from app.db.schema import SchemaMismatch
from app.db.store import DatabaseUnavailable
from app.db.tables import SweepState
from app.db.types import unreadable_columns
from app.services import content_store
from app.services.context import Yard

log = logging.getLogger(__name__)
PARTS = ("database", "schema", "blobs")
STAND_IN = "api-"
"""How the names of API processes begin, as runners of sweeps."""
FEW_FILES = 3
"""A process that cannot open so many has too few for any call."""
HANGS_SECONDS = 60.0
"""A pass that has not ended after so long is reported. The longest, of retention, goes on for about five seconds."""


@dataclass(slots=True)
class Readiness:
    """`parts` maps each part to `ok` or what is wrong with it; `sweep_age_seconds` the age of a sweep's last run.

    `degraded` maps what works in part to what does not; `degraded_sweeps` were run last by an API process, because no
    control worker did; `hanging_sweep_seconds` says how long ago a pass began that has not ended. `unreadable_columns`
    are those in which this process has met a row that cannot be read. None of these makes anything unready: calls are
    answered.
    """

    parts: dict[str, str] = field(default_factory=dict)
    degraded: dict[str, str] = field(default_factory=dict)
    sweep_age_seconds: dict[str, float] = field(default_factory=dict)
    unreadable_columns: list[str] = field(default_factory=list)
    degraded_sweeps: list[str] = field(default_factory=list)
    hanging_sweep_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Tell whether every part works."""
        return all(state == "ok" or part in self.degraded for part, state in self.parts.items())


def is_stand_in(runner: str) -> bool:
    """Tell whether an API process ran a sweep, in place of a control worker (PROTOCOL 6)."""
    return runner.startswith(STAND_IN)


def look(yard: Yard, *, for_anybody: bool, into: Readiness | None = None) -> Readiness:
    """Ask the database, its schema and the store of contents, and note each answer `into` what is returned.

    `for_anybody`: who asks has shown no key, so a driver's own words, which name hosts and users, go to the log alone.
    """
    found = into if into is not None else Readiness()
    if (lack := out_of_files()) is not None:
        found.parts["files"] = lack
    found.unreadable_columns = sorted(unreadable_columns)
    if yard.bells.trouble is not None:
        found.degraded["broker"] = f"{yard.bells.trouble}: batches go on, for heartbeats say when there is work"
    attempt = _try_in_private if for_anybody else _try
    found.parts["database"] = attempt(lambda: _connect(yard))
    found.parts["schema"] = attempt(lambda: schema.check(yard.store))
    if not for_anybody and found.parts["schema"] == "ok":
        # The API did so at its start. Another process has to ask the database whose contents it looks at.
        found.parts["blobs"] = attempt(lambda: content_store.expect(yard))
    if found.parts.get("blobs", "ok") == "ok":
        found.parts["blobs"] = attempt(lambda: _probe_contents(yard, found))
    if found.parts["schema"] == "ok":
        # Of another schema the tables may not be there, which is no fault of the database.
        found.parts["database"] = attempt(lambda: _sweep_ages(yard, found))
        found.parts["database"] = attempt(lambda: _held_back(yard, found, for_anybody=for_anybody))
    if found.parts["database"] == "ok":
        found.parts["database"] = attempt(yard.store.check_room)
    return found


def out_of_files() -> str | None:
    """Say that this process may open no more files, where it is so, in the form `WHAT; WHAT TO DO: DETAILS`."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(FEW_FILES))
    except OSError:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        do = "raise its limit (LimitNOFILE= of its unit, `ulimit -n`, or `prlimit --nofile=N --pid PID` as it runs)"
        return f"the API may open no more files and connections; {do}: it has {most}"
    else:
        return None
    finally:
        for file in opened:
            os.close(file)


def _try_in_private(part: Callable[[], None]) -> str:
    def told() -> None:
        try:
            part()
        except DatabaseUnavailable as error:
            log.warning("not ready: %s", error)
            raise DatabaseUnavailable(error.reason) from error

    return _try(told)


def _try(part: Callable[[], None]) -> str:
    try:
        part()
    except BlobFull:
        return "the disk for contents is full"
    except (DatabaseUnavailable, SchemaMismatch, BlobError) as error:
        return str(error)
    return "ok"


def _connect(yard: Yard) -> None:
    with yard.store.read() as session:
        yard.store.now(session)


def _sweep_ages(yard: Yard, found: Readiness) -> None:
    with yard.store.read() as session:
        now = yard.store.now(session)
        for sweep in readiness.sweeps(session):
            found.sweep_age_seconds[sweep.name] = round((now - sweep.last_run_at).total_seconds(), 3)
            if is_stand_in(sweep.runner):
                found.degraded_sweeps.append(sweep.name)
            if (seconds := unfinished_seconds(sweep, now)) > HANGS_SECONDS:
                found.hanging_sweep_seconds[sweep.name] = round(seconds, 3)


def unfinished_seconds(sweep: SweepState, now: datetime) -> float:
    """Return how long ago the oldest pass of a sweep began that has not ended; 0 when there is none."""
    since = sweep.unfinished_since
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0


def _held_back(yard: Yard, found: Readiness, *, for_anybody: bool) -> None:
    with yard.store.read() as session:
        blocking = open_transactions.longest(session)
    if blocking is None:
        return
    age = f"{blocking.age_seconds:.0f} s"
    if for_anybody:
        who = "a transaction" if blocking.pid is None else f"a transaction of the database process {blocking.pid}"
    else:
        who = _named(blocking)
    found.degraded["events"] = (
        f"{who} has been open for {age}: streams of events, and whoever follows results, get nothing that came since"
    )


def _named(blocking: OpenTransaction) -> str:
    of = f"user {blocking.user or '?'}, database {blocking.database or '?'}, {blocking.state or 'state not shown'}"
    if blocking.pid is None:
        return f"the prepared transaction {blocking.application!r} ({of})"
    return f"a transaction of pid {blocking.pid} ({blocking.application or 'no application name'}, {of})"


def _probe_contents(yard: Yard, found: Readiness) -> None:
    try:
        yard.blobs.probe()
    except BlobFull:
        found.degraded["blobs"] = "uploads fail; reads and running batches go on"
        raise
