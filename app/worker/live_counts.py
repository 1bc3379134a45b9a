"""Tells how many rows are finished and not handed in yet: for people, and nothing depends on it (R-32, A-05)."""

import time
from collections.abc import Iterable
from contextlib import suppress

from app.client.errors import Refused, TryLater
from app.schemas.segments import Progress
from app.worker.kit import Kit
from app.worker.rate import RateMeter
from app.worker.shard import Shard

LAST_SECONDS = 5.0
"""So long the last report is tried."""


class LiveCounts:
    """Those of one share."""

    def __init__(self, kit: Kit, batch_id: str, rate: RateMeter) -> None:
        self._kit = kit
        self._batch_id = batch_id
        self._rate = rate
        self._told_at = time.monotonic()

    def tell(self, shards: Iterable[Shard], *, at_end: bool = False) -> None:
        """Report them when it is time, and once more when the share ends. Raises Dismissed."""
        if not at_end and time.monotonic() - self._told_at < self._kit.progress_seconds:
            return
        self._told_at = time.monotonic()
        completed, failed = 0, 0
        for shard in shards:
            ok, all_rows = shard.pending_counts()
            completed += ok
            failed += all_rows - ok
        progress = Progress(
            worker_id=self._kit.worker_id,
            batch_id=self._batch_id,
            completed=completed,
            failed=failed,
            rows_per_second=round(self._rate.per_second(), 3),
        )
        with suppress(TryLater, Refused):  # the next one tells more; after the last one nobody asks for this batch
            self._kit.plane.progress(progress, deadline_seconds=LAST_SECONDS if at_end else 0.0)
