"""Telling the control plane that a row is about to start, where it must know before the row does (PROTOCOL 5)."""

from app.client.errors import Dismissed, Refused, TryLater
from app.domain.leases import LeaseVerdict
from app.domain.rows import Row, RowErrorCode
from app.schemas.claims import RowStart, RowStartVerdict
from app.worker.kit import Kit
from app.worker.shard import Shard

TRY_SECONDS = 5.0
WORD_SECONDS = 1.0
"""So long the first row of an ordinary shard waits for its word; without an answer it starts."""


class RowStarts:
    """Thread-safe. What an answer says of the lease reaches its shard."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def named(self, shard: Shard, row: Row) -> bool:
        """Name a row of a cautious shard, until there is an answer. False: it does not start, and the shard leaves."""
        while shard.is_open:
            try:
                return self._may_start(shard, row, TRY_SECONDS)
            except TryLater:
                shard.wait_left(TRY_SECONDS / 10)
            except Dismissed as error:
                self._kit.on_dismissed(error)
                return False
            except Refused as error:
                shard.fail(RowErrorCode.INTERNAL_ERROR, f"row {row.number} may not start: {error}")
                return False
        return False

    def told(self, shard: Shard, row: Row) -> bool:
        """Take back what a heartbeat said of a shard, that no row of it had begun: if this row ends us, it counts.

        False: the row does not start, for the lease is others'. While nobody answers it starts all the same.
        """
        with shard.word:
            if not shard.owes_word:
                return shard.is_open
            try:
                return self._may_start(shard, row, WORD_SECONDS)
            except Dismissed as error:
                self._kit.on_dismissed(error)
                return False
            except (TryLater, Refused):
                shard.owes_word = False
                return True

    def _may_start(self, shard: Shard, row: Row, seconds: float) -> bool:
        start = RowStart(
            worker_id=self._kit.worker_id, boot_id=self._kit.boot_id, lease_id=shard.lease_id, row=row.number
        )
        verdict = self._kit.plane.start_row(start, deadline_seconds=seconds).verdict
        shard.owes_word = False
        if verdict is RowStartVerdict.START:
            return shard.is_open
        told = LeaseVerdict.STOP if verdict is RowStartVerdict.STOP else LeaseVerdict.STALE
        self._kit.held.apply({shard.lease_id: told}, self._kit.clock())
        return False
