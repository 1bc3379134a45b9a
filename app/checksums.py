"""Fast checksums of stored contents. They show damage, not forgery. Both sides may import this module."""

import xxhash

BLOCK_BYTES = 1024 * 1024
"""A content is checked in blocks of this size, so that a part of it can be checked without reading the rest."""
CHECKSUM_DIGITS = 32


def checksum(data: bytes | memoryview) -> str:
    """Return the 128-bit XXH3 of `data` in hex."""
    return xxhash.xxh3_128_hexdigest(data)


def running() -> xxhash.xxh3_128:
    """Begin a checksum of bytes that come in pieces: `update`, then `hexdigest`."""
    return xxhash.xxh3_128()
