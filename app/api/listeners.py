"""The polls that wait in this process, and the one loop that wakes them (PROTOCOL 6).

A waiting poll costs a future and no thread. The loop reads the database once for all of them: at once when a bell of
this process rings, else every LOOK_SECONDS, which is when bells of other processes are heard. It wakes as many workers
as could start, and only whoever is woken looks at the database for itself.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from app.api.threads import WORKERS
from app.api.waiter import Waiter
from app.domain.errors import TryLater
from app.domain.polls import AGAIN_SECONDS, Told
from app.services import polls
from app.services.context import BatchRing, Bells, ControlRing, Yard
from app.services.polls import News, PoolNews

LOOK_SECONDS = 1.0
BURST_SECONDS = 0.1
"""Bells within so long are one look."""
_log = logging.getLogger("gpuyard.api")
_Mark = tuple[int, tuple[tuple[str, int], ...]]


class Listener(Waiter):
    """One poll that waits. Ended, it answers with nothing if need be: a newer poll is here, or the process ends."""

    def __init__(self, worker_id: str, pool: str, told: Told, *, wants_work: bool) -> None:
        super().__init__()
        self.worker_id = worker_id
        self.pool = pool
        self.told = told
        self.wants_work = wants_work
        self.looked_for: _Mark | None = None
        self.looked_at = float("-inf")


class Listeners:
    """Implements app.services.context.Bells: what rings in this process rings `bells`, and wakes who waits here."""

    def __init__(self, bells: Bells) -> None:
        self._bells = bells
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()
        self._rings = 0
        self._is_closed = False
        self._of_worker: dict[str, Listener] = {}
        self._of_pool: dict[str, dict[str, Listener]] = {}

    # --- Bells, from any thread

    @property
    def heard(self) -> bool:
        """Whether somebody publishes."""
        return self._bells.heard

    @property
    def trouble(self) -> str | None:
        """What keeps messages from being published."""
        return self._bells.trouble

    def publish(self, ring: BatchRing | ControlRing) -> None:
        """Publish what a committed transaction has noted, and tell who waits for such work."""
        self._bells.publish(ring)
        if isinstance(ring, BatchRing):
            self.ring()

    def batch(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Ring a pool for a batch."""
        self._bells.batch(batch_id, quiet_seconds=quiet_seconds)
        self.ring()

    def control(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Ring the control workers; none of them polls."""
        self._bells.control(batch_id, quiet_seconds=quiet_seconds)

    def stop(self, batch_id: str) -> None:
        """Ring the workers of a batch that is to stop."""
        self._bells.stop(batch_id)
        self.ring()

    def call(self, pool: str) -> None:
        """Have the workers of a pool call; those that poll are told by their next heartbeat."""
        self._bells.call(pool)

    def ring(self) -> None:
        """Look at the database now: something may concern those who wait."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._rings += 1
        self._rung.set()

    # --- those who wait, in the loop's thread

    @contextmanager
    def listening(self, worker_id: str, pool: str, told: Told, *, wants_work: bool) -> Iterator[Listener]:
        """Wait here inside the block. A worker waits once: its older poll is answered. Raises TryLater at the end."""
        older = self._of_worker.get(worker_id)
        if self._is_closed:
            raise TryLater("this API process is about to end; call again", code="unavailable")
        if older is not None:
            older.end()
            self._forget(older)
        listener = Listener(worker_id, pool, told, wants_work=wants_work)
        self._of_worker[worker_id] = listener
        self._of_pool.setdefault(pool, {})[worker_id] = listener
        try:
            yield listener
        finally:
            self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        if self._of_worker.get(listener.worker_id) is not listener:
            return
        del self._of_worker[listener.worker_id]
        del self._of_pool[listener.pool][listener.worker_id]
        if not self._of_pool[listener.pool]:
            del self._of_pool[listener.pool]

    async def run(self, yard: Yard) -> None:
        """Wake those who wait, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._rung.wait()
            self._rung.clear()
            if not self._of_worker:
                continue
            try:
                self._tell(await WORKERS.run(polls.whats_new, yard, list(self._of_pool)))
            except Exception as error:  # noqa: BLE001 - this loop lives as long as the process; a database comes back
                _log.warning("waiting workers could not be woken: %s", error)
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(BURST_SECONDS)

    def close(self) -> None:
        """Answer all, and let nobody wait any more: the process ends."""
        self._is_closed = True
        for listener in self._of_worker.values():
            listener.end()

    def _tell(self, news: News) -> None:
        for worker_id, commanded_at in news.commands.items():
            listener = self._of_worker.get(worker_id)
            if listener is not None and commanded_at > listener.told.commanded_at:
                listener.wake()
        for worker_id, batches in news.stopping.items():
            listener = self._of_worker.get(worker_id)
            if listener is not None and not set(batches) <= set(listener.told.stopping):
                listener.wake()
        for pool, work in news.work.items():
            self._ring_pool(self._of_pool.get(pool, {}), work)

    def _ring_pool(self, waiting: dict[str, Listener], work: PoolNews) -> None:
        """Wake as many as could start, whose last look is longest ago; for the same work each once in AGAIN_SECONDS."""
        mark, now = (self._rings, work.mark), time.monotonic()
        due = (
            listener
            for listener in waiting.values()
            if listener.wants_work and (listener.looked_for != mark or now - listener.looked_at >= AGAIN_SECONDS)
        )
        for listener in [listener for listener, _ in zip(due, range(work.wanted), strict=False)]:
            listener.looked_for, listener.looked_at = mark, now
            listener.wake()
            waiting[listener.worker_id] = waiting.pop(listener.worker_id)  # to the end of the row
