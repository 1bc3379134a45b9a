"""Taking a large body in: two pieces in memory at most, each worked on in a thread while the next one arrives."""

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable

from app.api.threads import Threads

PIECE_BYTES = 1024 * 1024


async def pour(
    chunks: AsyncIterator[bytes], work: Callable[[bytes], None], threads: Threads, *, first: bytes = b""
) -> None:
    """Have `work` take `first` and then the chunks, gathered into pieces, in their order and one at a time."""
    working: Future[None] | None = None
    buffer = bytearray(first)
    try:
        async for chunk in chunks:
            buffer += chunk
            if len(buffer) >= PIECE_BYTES:
                if working is not None:
                    await working
                working = asyncio.ensure_future(threads.run(work, bytes(buffer)))
                buffer = bytearray()
    finally:
        if working is not None:
            await working
    await threads.run(work, bytes(buffer))
