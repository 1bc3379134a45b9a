"""Cursors over columns that count up: where a reader goes on (PROTOCOL 9)."""

from app.domain.errors import BadRequest

_MAX = 2**63 - 1


def parse(text: str | None) -> int:
    """Read a cursor as an earlier answer gave it; 0, which stands before everything, for none.

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
