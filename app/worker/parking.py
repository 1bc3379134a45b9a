"""Rows of one batch that wait for their model: outside of the queue, so that they hold up nobody else (B-28)."""

import threading
from collections.abc import Callable

import structlog

from app.domain.rows import Row, RowErrorCode
from app.worker.puller import PullEnd, Puller
from app.worker.shard import Shard

log = structlog.get_logger("gpuyard.worker")


class Parking:
    """Thread-safe. `queue` is given a shard's rows once their model is there."""

    def __init__(self, puller: Puller, endpoint: str, queue: Callable[[Shard, list[Row]], None]) -> None:
        self._puller = puller
        self._endpoint = endpoint
        self._queue = queue
        self._changed = threading.Condition()
        self._rows: dict[tuple[Shard, str], list[Row]] = {}

    def __len__(self) -> int:
        """Count the rows that wait."""
        with self._changed:
            return sum(len(rows) for rows in self._rows.values())

    def sort_out(self, shard: Shard, rows: list[Row]) -> list[Row]:
        """Give the rows that may run now; the others wait here until their model has been fetched."""
        by_model: dict[str, list[Row]] = {}
        for row in rows:
            by_model.setdefault(row.model, []).append(row)
        ready: list[Row] = []
        for model, its_rows in by_model.items():
            with self._changed:
                self._rows[shard, model] = its_rows
            if not self._puller.need(model, self._endpoint, shard, self._then(shard, model)):
                ready += self._take(shard, model)
        return ready

    def forget(self, shard: Shard) -> None:
        """A shard has left: its rows are nobody's any more, and a pull that only it waited for is cut."""
        with self._changed:
            models = [model for waiting, model in self._rows if waiting is shard]
        for model in models:
            self._take(shard, model)
        self._puller.forget(shard)

    def wait(self, seconds: float) -> None:
        """Wait until fewer rows wait here than now, or for so long."""
        with self._changed:
            if self._rows:
                self._changed.wait(seconds)

    def _then(self, shard: Shard, model: str) -> Callable[[PullEnd], None]:
        return lambda end: self._ended(shard, model, end)

    def _ended(self, shard: Shard, model: str, end: PullEnd) -> None:
        rows = self._take(shard, model)
        if end.there:
            self._go_on(shard, rows)
        elif end.runtime_gone or not end.reason or end.too_large:
            # Another worker may have room. Where none has, it comes back while the failure is remembered, and fails.
            shard.leave(end.reason or "the worker leaves")
        else:
            shard.fail(RowErrorCode.MODEL_NOT_FOUND, f"The model {model!r} could not be fetched: {end.reason}")

    def _go_on(self, shard: Shard, rows: list[Row]) -> None:
        if not rows:
            return
        try:
            self._queue(shard, rows)
        except Exception as error:  # they are nobody's any more: a shard that waited for them would never end
            log.exception("shard.not_queued", lease_id=shard.lease_id)
            shard.fail(RowErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _take(self, shard: Shard, model: str) -> list[Row]:
        with self._changed:
            self._changed.notify_all()
            return self._rows.pop((shard, model), [])
