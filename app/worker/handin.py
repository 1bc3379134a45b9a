"""Building one hand-in from the shards of a batch (PROTOCOL 5, `app.schemas.segments`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.domain.rows import total
from app.domain.rowsets import RowSet
from app.schemas.segments import MAX_LEASES, End, FirstRows, HandInHeader, Part
from app.schemas.wire import UsageCounts
from app.worker.shard import Fate, Finished, Shard

MAX_BYTES = 16 * 1024 * 1024
"""What a hand-in carries at most, a single larger row apart; the rest goes with the next one."""


@dataclass(frozen=True, slots=True)
class HandIn:
    """Bytes that are sent as they are until somebody answers, and whose they are."""

    body: bytes
    parts: tuple[int, ...]
    ends: tuple[int, ...]
    line_bytes: int
    word: FirstRows | None = None
    counted: tuple[Part, ...] = ()

    @property
    def leases(self) -> frozenset[int]:
        """Every lease it speaks of."""
        return frozenset(self.parts) | frozenset(self.ends)


def build(
    worker_id: str,
    batch_id: str,
    shards: Iterable[Shard],
    word: FirstRows | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    may_end: Callable[[Shard], bool] = lambda _shard: True,
) -> HandIn | None:
    """Take what is finished out of the shards, and say `word` with it. None when there is nothing to say.

    One that may not end yet keeps its end for a later hand-in.
    The shards forget the rows with this call, and end only once: from here on the hand-in is the only one that knows.
    """
    parts: list[Part] = []
    ends: list[End] = []
    lines: list[bytes] = []
    size = 0
    for shard in shards:
        if shard.fate is Fate.GONE:
            continue
        if not shard.is_empty and len(parts) < MAX_LEASES and (size < max_bytes or not parts):
            seq, rows = shard.take(max_bytes - size)
            if rows:
                parts.append(_part(shard.lease_id, seq, rows))
                lines += [row.line for row in rows]
                size += parts[-1].length
        is_through = shard.is_settled and shard.is_complete and shard.is_empty
        if is_through and not shard.is_spooled and len(ends) < MAX_LEASES and may_end(shard):
            shard.is_spooled = True
            ends.append(End(lease_id=shard.lease_id, request_id=shard.end_request))
    if not parts and not ends and word is None:
        return None
    header = HandInHeader(worker_id=worker_id, batch_id=batch_id, parts=parts, ends=ends, first_rows=word)
    return written(header, lines)


def written(header: HandInHeader, lines: Iterable[bytes]) -> HandIn:
    """Write a header and the lines of its parts down."""
    return HandIn(
        body=b"".join((header.model_dump_json().encode(), b"\n", *lines)),
        parts=tuple(part.lease_id for part in header.parts),
        ends=tuple(end.lease_id for end in header.ends),
        line_bytes=sum(part.length for part in header.parts),
        word=header.first_rows,
        counted=tuple(header.parts),
    )


def _part(lease_id: int, seq: int, rows: list[Finished]) -> Part:
    usages = [row.usage for row in rows]
    completed = sum(row.completed for row in rows)
    return Part(
        lease_id=lease_id,
        seq=seq,
        rows=str(RowSet.of(row.row for row in rows)),
        completed=completed,
        failed=len(rows) - completed,
        usage=UsageCounts.of(total(usages)),
        off_format=sum(row.off_format for row in rows),
        other_model=sum(row.other_model for row in rows),
        length=sum(len(row.line) for row in rows),
    )
