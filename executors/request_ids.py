"""Ids of our requests to runtimes. They are read as UUIDs, too; to make those costs more than to send a row's head."""

import itertools
import secrets

_BITS = 128
_MASK = (1 << _BITS) - 1
_STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Odd, so that no number comes twice, and of such a size that the first digits differ from one to the next."""

_start = secrets.randbits(_BITS)
_numbers = itertools.count(1)


def new_request_id() -> str:
    """Give an id that no other request of this process has, begun by chance: a UUID in its usual form (RFC 9562, 5.4).

    llama-cpp-python answers 400 without a word to any other form, also to one without hyphens.
    """
    digits = f"{(_start + next(_numbers) * _STEP) & _MASK:032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
