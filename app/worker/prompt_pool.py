"""The prompt pool: one batch's threads, each running row after row (B-01, DESIGN 9).

A thread of the pool is a *lane*: it waits for a row that may start, takes a permit of the worker, and keeps it from row
to row until no row may start, an older batch wants it or the limit fell. So a row costs two short locks and no
hand-over to another thread, no more rows are in flight than there are permits, and rows that wait for a runtime hold
none.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from app.worker.permits import Age, Permits
from app.worker.row_queue import RowQueue
from app.worker.sizing import CEILING
from app.worker.units import Run

log = structlog.get_logger("gpuyard.worker")


class PromptPool:
    """Calls `run` for the rows of `rows`. `on_starved` is called when a lane with a permit finds no row at all."""

    def __init__(
        self,
        age: Age,
        permits: Permits,
        rows: RowQueue,
        run: Callable[[Run], None],
        on_starved: Callable[[], None] = lambda: None,
    ) -> None:
        self._age = age
        self._permits = permits
        self._rows = rows
        self._run = run
        self._on_starved = on_starved
        self._lock = threading.Lock()
        self._lanes = 0
        self._closed = False
        self._threads = ThreadPoolExecutor(CEILING, thread_name_prefix=f"rows-{age[1]}")

    def fit(self) -> None:
        """Have as many lanes as the worker has permits; lanes that a lowered limit leaves over just wait.

        Nothing once it is closed: whoever resizes all shares may meet one that is just ending.
        """
        with self._lock:
            if self._closed:
                return
            wanted = min(self._permits.limit, CEILING) - self._lanes
            self._lanes += max(0, wanted)
            for _ in range(wanted):
                self._threads.submit(self._lane)

    def close(self) -> None:
        """Send the lanes home, each after the row it has in flight."""
        with self._lock:
            self._closed = True
        self._rows.close()
        self._permits.abandon(self._age)
        self._threads.shutdown(wait=False)

    def _lane(self) -> None:
        structlog.contextvars.bind_contextvars(batch_id=self._age[1])
        while self._rows.wait():
            if not self._permits.acquire(self._age):
                continue
            try:
                self._row_after_row()
            finally:
                self._permits.release()

    def _row_after_row(self) -> None:
        if self._permits.must_yield(self._age):
            return
        run = self._rows.take()
        while run is not None:
            try:
                self._run(run)
            except BaseException:  # a lane outlives whatever one row brings; `run` has its own net below this one
                log.exception("lane.failed")
            if self._permits.must_yield(self._age):
                self._rows.done(run)
                return
            run = self._rows.next(run)
        if not len(self._rows):
            self._on_starved()
