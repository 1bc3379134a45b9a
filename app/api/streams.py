"""The streams of events that are open in this process, and the one loop that wakes them.

An open stream costs a connection and no thread. The loop asks the database once for all of them which batches have
something new, and whose key was revoked; only a stream that is woken looks for itself.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.concurrency import run_in_threadpool

from app.api.waiter import Waiter
from app.domain.errors import TryLater
from app.services import events
from app.services.context import Yard

LOOK_SECONDS = 0.5
MAX_STREAMS = 500
_log = logging.getLogger("gpuyard.api")


class Stream(Waiter):
    """One reader that has read a batch's events up to `seq`. Ended, it comes again, to another process.

    `is_refused`: its key was revoked, and it gets nothing more.
    """

    def __init__(self, batch_id: str, seq: int, token_id: str | None) -> None:
        super().__init__()
        self.batch_id = batch_id
        self.seq = seq
        self.token_id = token_id
        self.is_refused = False

    def refuse(self) -> None:
        """Have it end as it is."""
        self.is_refused = True
        self.end()


class Streams:
    """All of one process. Everything here runs in the loop's thread."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._is_closed = False

    @contextmanager
    def open(self, batch_id: str, seq: int, token_id: str | None) -> Iterator[Stream]:
        """Have the stream of a token's holder woken inside the block. Raises TryLater when there is no room for it.

        Its room is taken before anything is waited for: after a restart all readers come back at once.
        """
        if self._is_closed or len(self._open) >= MAX_STREAMS:
            raise TryLater(
                f"{len(self._open)} streams are open here already; ask for the batch now and then instead",
                code="too_many_streams",
            )
        stream = Stream(batch_id, seq, token_id)
        self._open.add(stream)
        try:
            yield stream
        finally:
            self._open.discard(stream)

    async def run(self, yard: Yard) -> None:
        """Wake streams, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._open:
                continue
            try:
                batch_ids = {stream.batch_id for stream in self._open}
                token_ids = {stream.token_id for stream in self._open if stream.token_id is not None}
                heads, revoked = await run_in_threadpool(events.news, yard, batch_ids, token_ids)
            except Exception as error:  # noqa: BLE001 - this loop lives as long as the process; a database comes back
                _log.warning("streams of events could not be woken: %s", error)
                continue
            for stream in self._open:
                if stream.token_id in revoked:
                    stream.refuse()
                elif heads.get(stream.batch_id, 0) > stream.seq:
                    stream.wake()

    def close(self) -> None:
        """End all, and open none any more: the process ends."""
        self._is_closed = True
        for stream in self._open:
            stream.end()
