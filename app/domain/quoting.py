"""Texts of others that are quoted in messages and logs."""

import re

_NOT_PRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]+")


def printable(text: str) -> str:
    """Replace what no log and no terminal should be sent: control characters, and what stands for bytes of no text."""
    return _NOT_PRINTABLE.sub(" ", text)
