"""Running a cautious shard: one row at a time, named before it starts and stored before the next (PROTOCOL 5).

Such a shard lost several workers. If this one is lost too, the control plane knows by which row.
"""

import threading
from collections import deque
from collections.abc import Callable

from app.domain.rows import Row
from app.worker.row_starts import RowStarts
from app.worker.shard import Shard

LOOK_SECONDS = 0.5


class RowByRow:
    """The rows of cautious shards that have not started. Thread-safe; `start` queues a row that may start now."""

    def __init__(self, starts: RowStarts, start: Callable[[Shard, Row], None]) -> None:
        self._starts = starts
        self._start = start
        self._changed = threading.Condition()
        self._rows: dict[Shard, deque[Row]] = {}

    def add(self, shard: Shard, rows: list[Row]) -> None:
        """Take in rows whose model is there."""
        with self._changed:
            self._rows.setdefault(shard, deque()).extend(rows)
            self._changed.notify_all()

    def forget(self, shard: Shard) -> None:
        """A shard has left: its rows are nobody's any more."""
        with self._changed:
            self._rows.pop(shard, None)
            self._changed.notify_all()

    def run(self, shard: Shard) -> None:
        """Run the rows of a shard in this thread's time; returns when it has left, or has ended."""
        while shard.is_open:
            row = self._next(shard)
            if row is None:
                continue
            if not self._starts.named(shard, row):
                return
            left = shard.unfinished - 1
            self._start(shard, row)
            shard.wait_stored(left)
        self.forget(shard)

    def _next(self, shard: Shard) -> Row | None:
        with self._changed:
            if not self._rows.get(shard):
                self._changed.wait(LOOK_SECONDS)
            rows = self._rows.get(shard)
            return rows.popleft() if rows else None
