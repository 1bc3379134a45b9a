"""Locks on what has no row yet (PROTOCOL 9). They end with the transaction."""

from collections.abc import Iterable
from hashlib import sha256

from sqlalchemy import text
from sqlmodel import Session


def hold(session: Session, names: Iterable[str]) -> None:
    """Wait until this transaction alone holds every name. On SQLite a writing transaction is alone anyway."""
    if session.get_bind().dialect.name != "postgresql":
        return
    # In one order for everybody, or two transactions that share two names could wait for each other.
    for key in sorted({_key(name) for name in names}):
        session.connection().execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def _key(name: str) -> int:
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], signed=True)
