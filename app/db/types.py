"""Column types that mean the same on SQLite and PostgreSQL."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import JSON, BigInteger, Integer, String
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

log = logging.getLogger(__name__)
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
        """Undo the escape; what is none stays as it is, for one bad row must not hide the others."""
        if value is None or not value.startswith("\\"):
            return value
        try:
            return str(json.loads(value[1:]))
        except (ValueError, RecursionError):
            return value


class UnreadableObject(dict[str, Any]):
    """Stands for an object that cannot be read: it is empty, and `unreadable` finds it."""


class UnreadableArray(list[Any]):
    """Stands for an array that cannot be read."""


class Json(TypeDecorator[Any]):
    """A small JSON value: an object (`dict`) or an array (`list`), or NULL where `nullable`.

    A value that is neither, holds what it may not (`values`), or is no JSON, does not stop the query that reads its row
    among others. An empty value stands for it, which is never written back unless somebody sets the column.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, shape: type, *, nullable: bool = False, column: str = "") -> None:
        """`column` is `table.column`, for the log; `app.db.tables` sets it."""
        super().__init__(none_as_null=nullable)
        self.shape = shape
        self.nullable = nullable
        self.column = column
        self.values: TypeAdapter[Any] | None = None
        """What the object or array may hold; `app.db.tables` sets it."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Read what the driver gives."""
        parse = super().result_processor(dialect, coltype)

        def read(value: Any) -> Any:
            try:
                found = value if parse is None else parse(value)
            except (ValueError, TypeError, RecursionError):
                return self._unreadable(value)
            if self._fits(found) or (value is None and self.nullable):
                return found
            return self._unreadable(value)

        return read

    def read_text(self, value: str) -> Any:
        """Read a value that the query gave as text."""
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return self._unreadable(value)
        return found if self._fits(found) else self._unreadable(value)

    def _fits(self, found: object) -> bool:
        if not isinstance(found, self.shape) or not found or self.values is None:
            return isinstance(found, self.shape)
        try:
            self.values.validate_python(found)
        except ValidationError:
            return False
        return True

    def _unreadable(self, value: object) -> object:
        if self.column not in unreadable_columns:
            unreadable_columns.add(self.column)
            log.error("%s holds %.100r in some row, which cannot be read; it is taken for empty", self.column, value)
        return UnreadableObject() if self.shape is dict else UnreadableArray()


unreadable_columns: set[str] = set()
"""Columns, `table.column`, in which this process has met a value that cannot be read."""


def unreadable(value: object) -> bool:
    """Whether an empty value stands for one that cannot be read."""
    return isinstance(value, UnreadableObject | UnreadableArray)


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
