"""Ids of our requests to runtimes. They are read as UUIDs, too; to make those costs more than to send a row's head."""

import itertools
import secrets

_BITS = 128
_MASK = (1 << _BITS) - 1
_STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Odd, so that no id comes twice, and of such a size that the first digits differ from one to the next."""

_start = secrets.randbits(_BITS)
_numbers = itertools.count(1)


def new_request_id() -> str:
    """Give an id that no other request of this process has, begun by chance: 32 hexadecimal digits."""
    return f"{(_start + next(_numbers) * _STEP) & _MASK:032x}"
