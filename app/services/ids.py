"""Ids that users see: a prefix that says what it is, and 128 random bits."""

import secrets


def new(prefix: str) -> str:
    """Make an id such as `batch_5f3c…`. Nobody can guess another one from it."""
    return prefix + secrets.token_hex(16)
