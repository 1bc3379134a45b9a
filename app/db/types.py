"""Column types that mean the same on SQLite and PostgreSQL."""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Integer, String
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

BigId = BigInteger().with_variant(Integer(), "sqlite")
"""A key that counts up. SQLite autoincrements nothing but its own INTEGER."""


class UtcMs(TypeDecorator[datetime]):
    """An aware UTC time, stored as integer milliseconds since 1970.

    One representation for both databases: text timestamps compare wrongly on SQLite, and rules add durations to stored
    times in SQL (PROTOCOL 1, 4).
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | int | None, dialect: Dialect) -> int | None:
        """Turn an aware time (or milliseconds) into milliseconds. Naive times are refused."""
        if value is None or isinstance(value, int):
            return value
        if value.tzinfo is None:
            raise ValueError(f"a naive time cannot be stored: {value!r}")
        return to_ms(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Turn milliseconds into an aware time."""
        return None if value is None else from_ms(value)

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Compare with times as times, and add plain integers as milliseconds."""
        return BigInteger() if isinstance(value, int) else self


class AnyText(TypeDecorator[str]):
    """Text from outside in any Unicode, kept exactly.

    PostgreSQL refuses a NUL and both drivers refuse a lone surrogate; a value that holds one (or begins like the escape
    itself) is stored as a backslash and its JSON form. Equal values stay equal, so look-ups work.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what a database would refuse."""
        if value is None or (not value.startswith("\\") and "\0" not in value and _encodable(value)):
            return value
        return "\\" + json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Undo the escape."""
        return str(json.loads(value[1:])) if value is not None and value.startswith("\\") else value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded to the nearest."""
    return round(at.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    """The aware UTC time `ms` milliseconds after 1970."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
