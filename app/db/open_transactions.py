"""Transactions that have been open for long in PostgreSQL: what was written since is shown to nobody who follows it.

Whoever reads events or rows by a cursor waits for every transaction that could still commit below it (app.db.events).
One that has written and is left open, in whatever database of the same server, holds all of them back.
"""

from typing import NamedTuple

from sqlalchemy import text
from sqlmodel import Session

LONG_SECONDS = 30.0
_NEWEST = 5000
# Another user's session shows its start and state to roles with pg_read_all_stats alone; then its age is that of the
# oldest event it holds back.
_OLDEST = text(
    f"""
    SELECT pid, application, username, database, state, extract(epoch FROM clock_timestamp() - coalesce(began, (
        SELECT to_timestamp(min(at) / 1000.0) FROM (SELECT at, txid FROM event ORDER BY seq DESC LIMIT {_NEWEST}) newest
        WHERE txid >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    )))::float AS age
    FROM (
        SELECT pid, application_name AS application, usename AS username, datname AS database, state,
               xact_start AS began, age(backend_xid) AS since
        FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
        UNION ALL
        SELECT NULL, gid, owner, database, 'prepared', prepared, age(transaction) FROM pg_prepared_xacts
    ) running
    ORDER BY since DESC LIMIT 1
    """  # noqa: S608 - our own constant
)


class OpenTransaction(NamedTuple):
    """`pid` None: a prepared transaction, whose name is its `application`. `state` None: not for us to see."""

    pid: int | None
    application: str | None
    user: str | None
    database: str | None
    state: str | None
    age_seconds: float


def longest(session: Session) -> OpenTransaction | None:
    """Find the oldest transaction that holds cursors back, when it has been open for LONG_SECONDS."""
    if session.get_bind().dialect.name != "postgresql":
        return None
    row = session.execute(_OLDEST).first()
    found = OpenTransaction(*row) if row is not None and row.age is not None else None
    return found if found is not None and found.age_seconds >= LONG_SECONDS else None
