"""From a granted shard to rows in the queue: fetch its bytes, leave out what is done, answer what is refused."""

from collections.abc import Callable

from app.client.errors import Refused, TryLater
from app.domain.outputs import output_line
from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.schemas.claims import BatchBrief
from app.schemas.handins import write_line
from app.worker.kit import Kit
from app.worker.parameters import asking
from app.worker.rows import RefusedRow, read_rows
from app.worker.shard import Finished, Shard


def load(kit: Kit, batch: BatchBrief, shard: Shard, queue: Callable[[Shard, list[Row]], None]) -> None:
    """Fill the queue with the rows of `shard` that are still to run.

    An input that cannot be had is no fault of the shard: it leaves, and somebody else tries. An input that is not
    there, or is another than the grant says, is a failure. Raises Dismissed.
    """
    grant = shard.grant
    try:
        content = kit.plane.download(batch.input_path, grant.start, grant.end)
    except TryLater as error:
        shard.leave(f"the input cannot be read now: {error}")
        return
    except Refused as error:
        shard.fail(RowErrorCode.INTERNAL_ERROR, f"the input cannot be read: {error}")
        return
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
    if grant.parameters or batch.drop_parameters:
        to_run = [asking(row, may_drop=batch.drop_parameters) for row in to_run]
    if shard.loaded(len(to_run)):
        queue(shard, to_run)


def finished(batch_id: str, row: Row | RefusedRow, reply: Reply) -> Finished:
    """Write a row's stored line."""
    line = output_line(batch_id, row.number, row.custom_id, reply)
    return Finished(row.number, write_line(row.number, reply, line), reply.ok, reply.usage)
