"""Asks pooled connections that lay unused whether they still work, and no busy ones: that was half of all traffic."""

import time

from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

REST_SECONDS = 1.0
_USED_AT = "used_at"


def ping_after_a_rest(engine: Engine, rest_seconds: float = REST_SECONDS) -> None:
    """Ask a connection before its first use after a rest; a dead one is replaced, and with it all others of the pool.

    One that dies within the rest fails its next transaction, as one that dies in a transaction does: the caller is told
    that the database is away (503), the pool is emptied, and the next try gets a new connection.
    """

    def returned(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info[_USED_AT] = time.monotonic()

    def taken(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection) -> None:
        used_at = record.info.get(_USED_AT)
        rested = used_at is not None and time.monotonic() - used_at >= rest_seconds
        if rested and not engine.dialect._do_ping_w_event(connection):  # noqa: SLF001 - tells lost from wrong
            raise InvalidatePoolError("the connection was lost while it was not used")

    event.listen(engine, "checkin", returned)
    event.listen(engine, "checkout", taken)
