"""From a granted shard to rows in the queue: fetch its bytes, leave out what is done, answer what is refused."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from app.checksums import checksum
from app.client.errors import Refused, TryLater
from app.domain.byte_ranges import neighbours
from app.domain.outputs import output_line
from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import ServedModel
from app.schemas.claims import BatchBrief
from app.schemas.handins import write_line
from app.worker.kit import Kit
from app.worker.parameters import asking
from app.worker.rows import RefusedRow, read_rows
from app.worker.shard import Finished, Shard
from executors.answered_otherwise import is_of_other_model, is_off_format

FETCH_BYTES = 1024 * 1024
"""Neighbouring shards are fetched together up to here: each call costs the API three transactions."""
LOST = frozenset({"file_damaged", "content_missing"})
"""How the API says that an input is not what was written, or is gone."""


def stretches(shards: Iterable[Shard]) -> Iterator[list[Shard]]:
    """Put shards together whose bytes come by one call: those that brought theirs, and those that lie side by side."""
    shards = list(shards)
    if brought := [shard for shard in shards if shard.grant.content is not None]:
        yield brought
    to_fetch = [shard for shard in shards if shard.grant.content is None]
    rest = iter(to_fetch)
    for ranges in neighbours([(shard.grant.start, shard.grant.end) for shard in to_fetch], FETCH_BYTES):
        yield list(islice(rest, len(ranges)))


def fetch(kit: Kit, batch: BatchBrief, stretch: Sequence[Shard]) -> list[tuple[Shard, bytes]]:
    """Give each shard of a stretch (`stretches`) with its bytes; nothing when they cannot be had.

    An input that cannot be had is no fault of the shard: it leaves, and somebody else tries. An input that is not
    there, or is not the one that was validated, is a failure. Raises Dismissed.
    """
    if stretch[0].grant.content is not None:
        found = [(shard, (shard.grant.content or "").encode()) for shard in stretch]
    else:
        found = _download(kit, batch, stretch)
    checked = ((shard, content if _is_right(shard, content) else _again(kit, batch, shard)) for shard, content in found)
    return [(shard, content) for shard, content in checked if content is not None]


def _is_right(shard: Shard, content: bytes) -> bool:
    return shard.grant.input_sum in {None, checksum(content)}


def _again(kit: Kit, batch: BatchBrief, shard: Shard) -> bytes | None:
    """Fetch a shard's bytes alone, once more: they may have been damaged on their way. None: they were not."""
    for _, content in _download(kit, batch, [shard]):
        if _is_right(shard, content):
            return content
        start, end = shard.grant.start, shard.grant.end
        message = f"the input's bytes {start} to {end - 1} came as others than were validated, twice"
        shard.fail(RowErrorCode.INPUT_DAMAGED, message)
    return None


def _download(kit: Kit, batch: BatchBrief, stretch: Sequence[Shard]) -> list[tuple[Shard, bytes]]:
    start, end = stretch[0].grant.start, stretch[-1].grant.end
    try:
        content = kit.plane.download(batch.input_path, start, end)
    except TryLater as error:
        for shard in stretch:
            shard.leave(f"the input cannot be read now: {error}")
        return []
    except Refused as error:
        if error.code in LOST and len(stretch) > 1:  # some of them may be whole
            return [pair for shard in stretch for pair in _download(kit, batch, [shard])]
        for shard in stretch:
            # Only a control plane that checks its contents knows the other code.
            is_lost = error.code in LOST and shard.grant.input_sum is not None
            code = RowErrorCode.INPUT_DAMAGED if is_lost else RowErrorCode.INTERNAL_ERROR
            shard.fail(code, f"the input cannot be read: {error}")
        return []
    return [(shard, content[shard.grant.start - start : shard.grant.end - start]) for shard in stretch]


def fill(batch: BatchBrief, shard: Shard, content: bytes, queue: Callable[[Shard, list[Row]], None]) -> None:
    """Fill the queue with the rows of `shard` that are still to run. Another input than the grant says is a failure."""
    grant = shard.grant
    rejected = {row.row: RowError(row.code, row.message) for row in grant.rejected}
    rows = list(
        read_rows([content], first_row=grant.first_row, endpoint=batch.endpoint, offset=grant.start, rejected=rejected)
    )
    if len(rows) != grant.rows:
        shard.fail(RowErrorCode.INTERNAL_ERROR, f"the input's range holds {len(rows)} rows, not {grant.rows}")
        return
    done = set(shard.done)
    open_rows = [row for row in rows if row.number not in done]
    for row in open_rows:
        if isinstance(row, RefusedRow):
            shard.finish(finished(batch.id, row, Reply(error=row.error)), ran=False)
    to_run = [row for row in open_rows if isinstance(row, Row)]
    left_out = frozenset(batch.left_out)
    if grant.parameters or batch.drop_parameters or left_out:
        to_run = [asking(row, may_drop=batch.drop_parameters, left_out=left_out) for row in to_run]
    if shard.loaded(len(to_run)):
        queue(shard, to_run)


def finished(batch_id: str, row: Row | RefusedRow, reply: Reply, models: Sequence[ServedModel] = ()) -> Finished:
    """Write a row's stored line, and look whether it is what the row asked for. `models` are the runtime's."""
    if isinstance(row, Row) and row.dropped:
        reply = replace(reply, dropped=(*row.dropped, *reply.dropped))
    line = output_line(batch_id, row.number, row.custom_id, reply)
    stored = write_line(row.number, reply, line)
    if not reply.ok or reply.body is None or not isinstance(row, Row):
        return Finished(row.number, stored, reply.ok, reply.usage)
    off_format, other_model = is_off_format(row, reply.body), is_of_other_model(row.model, reply.body, models)
    return Finished(row.number, stored, reply.ok, reply.usage, off_format, other_model)
