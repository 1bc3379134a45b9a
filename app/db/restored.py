"""Transaction numbers of a database that was restored into another PostgreSQL cluster.

A cursor passes over no row whose transaction may still run (PROTOCOL 9), and compares `txid` with the transactions that
run now. A dump keeps `txid`, and another cluster counts from the start: there the old numbers lie in the future, and
hide their rows until the new cluster has counted as far. Each such row was committed before the dump: 0 is right.
"""

from sqlalchemy import BigInteger, ColumnElement, literal_column, text, update
from sqlmodel import Session, col

from app.db import exclusive
from app.db.store import Store
from app.db.tables import Event, KnownCluster, Segment

_XMAX: ColumnElement[int] = literal_column("pg_snapshot_xmax(pg_current_snapshot())::text::bigint", BigInteger)


def check(store: Store) -> int:
    """Settle what another cluster has numbered, and return the number of rows. For the start of each process.

    The rows are read only where the cluster is not the one that the last start saw: there may be millions.
    """
    if store.dialect != "postgresql":
        return 0
    with store.read() as session:
        if _is_known(session, _system_identifier(session)):
            return 0
    return store.run(_check_alone)


def settle(store: Store) -> int:
    """Settle them whichever cluster this is: the caller knows that the database was restored."""
    return store.run(settle_numbers) if store.dialect == "postgresql" else 0


def settle_numbers(session: Session) -> int:
    """Set every `txid` that this cluster has not given out yet to 0, and return the number of rows.

    Transactions may run meanwhile. The snapshot that finds the rows is the one they are compared with: whatever it sees
    was written here by a lower number, or elsewhere.
    """
    settled = 0
    for table in (Event, Segment):
        done = session.connection().execute(update(table).where(col(table.txid) >= _XMAX).values(txid=0))
        settled += done.rowcount
    return settled


def _check_alone(session: Session) -> int:
    # Two that update the same rows in different orders would wait for each other.
    exclusive.hold(session, ["known cluster"])
    found = _system_identifier(session)
    if _is_known(session, found):  # by the one that this one has waited for
        return 0
    settled = settle_numbers(session)
    if found is not None:
        session.merge(KnownCluster(id=1, system_identifier=found))
    return settled


def _is_known(session: Session, found: str | None) -> bool:
    known = session.get(KnownCluster, 1, populate_existing=True)
    return known is not None and known.system_identifier == found


def _system_identifier(session: Session) -> str | None:
    """Read what no two clusters share. None: an administrator has forbidden it, so each start looks at the rows."""
    connection = session.connection()
    if not connection.scalar(text("SELECT has_function_privilege('pg_control_system()', 'execute')")):
        return None
    return str(connection.scalar(text("SELECT system_identifier::text FROM pg_control_system()")))
