"""The prompt pool: one batch's threads, each running row after row (B-01, DESIGN 9).

A thread of the pool is a *lane*: it waits for a row that may start, takes a permit of the worker, and keeps it from row
to row until no row may start, an older batch wants it or the limit fell. So a row costs two short locks and no
hand-over to another thread, no more rows are in flight than there are permits, and rows that wait for a runtime hold
none. A row that is under way by itself takes the permit along, and so does the next one that is started at its end.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import structlog

from app.worker.lane import Rest
from app.worker.permits import Age, Permits
from app.worker.row_queue import RowQueue
from app.worker.sizing import CEILING
from app.worker.units import Run

log = structlog.get_logger("gpuyard.worker")


class Runner(Protocol):
    """What runs a row (app.worker.lane)."""

    def start(self, run: Run, ended: Callable[[Run, Rest | None], None]) -> bool:
        """Begin it without waiting; False: `run` it."""

    def run(self, run: Run, rest: Rest | None = None) -> None:
        """Run it, or the rest of it, and wait."""


class PromptPool:
    """Has `runner` run the rows of `rows`. `on_starved` is called when a permit finds no row at all.

    `on_no_thread` hears that a row waits for a thread that cannot be started; `fit` starts one for it later.
    """

    def __init__(
        self,
        age: Age,
        permits: Permits,
        rows: RowQueue,
        runner: Runner,
        on_starved: Callable[[], None] = lambda: None,
        on_no_thread: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        self._age = age
        self._permits = permits
        self._rows = rows
        self._runner = runner
        self._on_starved = on_starved
        self._on_no_thread = on_no_thread
        self._lock = threading.Lock()
        self._lanes = 0
        self._owed = 0
        """Threads that could not be started; the executor keeps what they were to do."""
        self._closed = False
        # As many lanes as permits, and one thread for each permit's row that was under way and wants one.
        self._threads = ThreadPoolExecutor(2 * CEILING, thread_name_prefix=f"rows-{age[1]}")

    def fit(self) -> None:
        """Have as many lanes as the worker has permits; lanes that a lowered limit leaves over just wait.

        Nothing once it is closed: whoever resizes all shares may meet one that is just ending. Raises RuntimeError when
        no thread can be started.
        """
        with self._lock:
            if self._closed:
                return
            for _ in range(self._owed):
                self._threads.submit(_nothing)
                self._owed -= 1
            while self._lanes < min(self._permits.limit, CEILING):
                self._lanes += 1
                try:
                    self._threads.submit(self._lane)
                except RuntimeError:
                    self._owed += 1
                    raise

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
            if self._permits.acquire(self._age):
                self._go_on(None if self._permits.must_yield(self._age) else self._first())

    def _first(self) -> Run | None:
        run = self._rows.take()
        if run is None:
            self._look_whether_starved()
        return run

    def _go_on(self, run: Run | None, rest: Rest | None = None) -> None:
        """Run row after row, in a thread that may wait, until one is under way by itself: it takes the permit along."""
        while run is not None:
            if rest is None and self._runner.start(run, self._ended):
                return
            try:
                self._runner.run(run, rest)
            except BaseException:  # a lane outlives whatever one row brings; `run` has its own net below this one
                log.exception("lane.failed")
            run, rest = self._after(run), None
        self._permits.release()

    def _ended(self, run: Run, rest: Rest | None) -> None:
        """A row that was under way is settled, or wants a thread. Here nothing may wait."""
        following = self._after(run) if rest is None else run
        if following is None:
            self._permits.release()
        elif rest is not None or not self._runner.start(following, self._ended):
            try:
                self._threads.submit(self._go_on, following, rest)
            except RuntimeError as error:
                if not self._closed:  # no thread can be started now; the row stands in line for the next one that can
                    log.warning("lane.no_thread", why=str(error))
                    with self._lock:
                        self._owed += 1
                    self._on_no_thread(error)
                    return
                self._rows.done(following)  # nobody wants the row any more
                self._permits.release()

    def _after(self, run: Run) -> Run | None:
        """Give the place of a row back and take another one. None: none may start, and the permit is not needed."""
        if self._permits.must_yield(self._age):
            self._rows.done(run)
            return None
        following = self._rows.next(run)
        if following is None:
            self._look_whether_starved()
        return following

    def _look_whether_starved(self) -> None:
        if not len(self._rows):
            self._on_starved()


def _nothing() -> None:
    """Have a thread started: it does what waits for one."""
