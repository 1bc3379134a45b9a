"""Cursors: where a reader of a list goes on (PROTOCOL 9, OPENAI_CONTRACT 1.10)."""

from collections.abc import Callable
from typing import TypeVar

from app.domain.errors import BadRequest

_MAX = 2**63 - 1
Found = TypeVar("Found")


def parse(text: str | None) -> int:
    """Read a cursor over a column that counts up, as an answer gave it; 0, which stands before everything, for none.

    Raises BadRequest for text that is none, and for a number that no column can hold.
    """
    if not text:
        return 0
    # The length first: Python refuses to read thousands of digits, leading zeros included.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX)) and int(text) <= _MAX):
        raise BadRequest(
            f"Invalid value for 'after': {text[:40]!r} is no cursor of an earlier answer.",
            code="invalid_value",
            param="after",
        )
    return int(text)


def behind(after: str | None, find: Callable[[str], Found | None], what: str) -> Found | None:
    """Give what `find` knows of the item that a page begins behind; None without one: at the start.

    Raises BadRequest for an id that `find` does not know; `what` says of what it is none.
    """
    if after is None:
        return None
    found = find(after)
    if found is None:
        raise BadRequest(f"{what}: {after[:200]}", code="invalid_value", param="after")
    return found
