"""The streams of events that are open in this process, and the one loop that looks for all of them.

An open stream costs a connection and no thread. The loop asks the database once which batches have something new and
whose key was revoked, and reads each batch that is shown once for all its readers. Only a stream that shows events
looks for itself, when there are some.
"""

import asyncio
import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from app.api.waiter import Waiter
from app.domain.batches import ENDED
from app.domain.errors import TryLater
from app.schemas.batches import BatchObject
from app.services import batches, events
from app.services.context import Yard

LOOK_SECONDS = 0.5
SHOW_SECONDS = 1.0
"""How often batches themselves are read where no event told of a change: rows are counted without one."""
REST = 9
"""After a pass as many times as long passes without one: readers take a tenth of a processor, however many they are."""
LONGEST_REST_SECONDS = 15.0
_OVER = frozenset(state.value for state in ENDED)
_log = logging.getLogger("gpuyard.api")


@dataclass(frozen=True, slots=True)
class Shown:
    """A batch as a message without an id."""

    text: str
    has_ended: bool


def shown(batch: BatchObject) -> Shown:
    """Write a batch down, for all who read it."""
    return Shown(f"event: batch\ndata: {json.dumps(batch.model_dump())}\n\n", batch.status in _OVER)


class Stream(Waiter):
    """One reader that has read a batch's events up to `seq`, of those up to `head`; `shown`: the batch, if it is shown.

    Ended, it comes again, to another process. `is_refused`: its key was revoked, and it gets nothing more.
    """

    def __init__(self, batch_id: str, seq: int, token_id: str | None, *, shows_events: bool) -> None:
        super().__init__()
        self.batch_id = batch_id
        self.seq = self.head = seq
        self.token_id = token_id
        self.shows_events = shows_events
        self.shown: Shown | None = None
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
        self._shown_at = float("-inf")

    @contextmanager
    def open(self, batch_id: str, seq: int, token_id: str | None, *, shows_events: bool) -> Iterator[Stream]:
        """Have the stream of a token's holder woken inside the block. Raises TryLater when the process ends."""
        if self._is_closed:
            raise TryLater("this API process is about to end; call again", code="unavailable")
        stream = Stream(batch_id, seq, token_id, shows_events=shows_events)
        self._open.add(stream)
        try:
            yield stream
        finally:
            self._open.discard(stream)

    async def run(self, yard: Yard) -> None:
        """Wake streams, until cancelled."""
        rest = LOOK_SECONDS
        while True:
            await asyncio.sleep(rest)
            began = time.monotonic()
            if self._open:
                try:
                    await self._pass(yard)
                except Exception as error:  # noqa: BLE001 - this loop lives as long as the process; a database comes back
                    _log.warning("streams of events could not be woken: %s", error)
            rest = min(max(LOOK_SECONDS, REST * (time.monotonic() - began)), LONGEST_REST_SECONDS)

    async def _pass(self, yard: Yard) -> None:
        batch_ids = {stream.batch_id for stream in self._open}
        token_ids = {stream.token_id for stream in self._open if stream.token_id is not None}
        heads, revoked = await run_in_threadpool(events.news, yard, batch_ids, token_ids)
        for stream in self._open:
            if stream.token_id in revoked:
                stream.refuse()
        news = [stream for stream in self._open if heads.get(stream.batch_id, 0) > stream.seq]
        now = time.monotonic()
        if now - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            wanted = {stream.batch_id for stream in self._open if stream.shown is not None}
        else:
            wanted = {stream.batch_id for stream in news if stream.shown is not None}
        found = await run_in_threadpool(_read, yard, wanted) if wanted else {}
        for stream in self._open:
            if stream.shown is not None and stream.batch_id in wanted:
                self._show(stream, found.get(stream.batch_id))
        for stream in news:
            stream.head = heads[stream.batch_id]
            if stream.shows_events:
                stream.wake()
            else:
                stream.seq = stream.head

    def _show(self, stream: Stream, now: Shown | None) -> None:
        if now is None:
            stream.end()  # the batch is forgotten
        elif now != stream.shown:
            stream.shown = now
            stream.wake()

    def close(self) -> None:
        """End all, and open none any more: the process ends."""
        self._is_closed = True
        for stream in self._open:
            stream.end()


def _read(yard: Yard, batch_ids: Collection[str]) -> Mapping[str, Shown]:
    return {batch.id: shown(batch) for batch in batches.now(yard, batch_ids)}
