"""Running rows of an ended batch again: a new batch, with a file of its own that holds just these rows.

The file is written line by line as the old input and the old error file are read side by side, both in input order.
"""

from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO

from sqlmodel import Session

from app.blobs.checked import as_file
from app.blobs.store import BlobDamaged, BlobMissing, Stored
from app.db.tables import Batch, Blob, File
from app.domain.batches import ENDED, BatchState
from app.domain.errors import BadRequest, Conflict
from app.domain.lines import Line, read_lines
from app.domain.outputs import line_start
from app.domain.row_failures import failed_row, matches
from app.domain.rows import RowErrorCode
from app.schemas.batches import BatchObject, NewBatch, NewRetry
from app.services import batches, blobs, damage, files
from app.services.batches import Call
from app.services.context import Caller, Yard
from app.services.files import Upload
from app.services.own_batch import own_batch
from app.services.results import gathered
from app.services.whole_rows import check_whole

_NOT_READ = {
    BatchState.CANCELLED: RowErrorCode.BATCH_CANCELLED,
    BatchState.EXPIRED: RowErrorCode.BATCH_EXPIRED,
}
"""What would be the code of each row of a batch that ended before its input was read."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows come from: `errors` names those that failed, `codes` chooses among them where there are any.

    Without `errors` all rows of `input` are taken.
    """

    batch: Batch
    input: tuple[File, Blob]
    errors: tuple[File, Blob] | None
    codes: Collection[str]


def retry(
    yard: Yard,
    caller: Caller,
    batch_id: str,
    wanted: NewRetry,
    *,
    retry_count: int = 0,
    idempotency_key: str | None = None,
) -> BatchObject:
    """Make a batch of rows of one that has ended, or return the one that this same call has made before.

    Raises NotFound, also for a file that is needed and was deleted, Conflict for a batch that cannot be retried or has
    no such rows, and what app.services.batches.create raises.
    """
    if wanted.codes and wanted.rows != "failed":
        message = f"'codes' choose among the failed rows: leave out 'rows', which is {wanted.rows!r}."
        raise BadRequest(message, code="invalid_value", param="codes")
    arguments = wanted.model_dump(exclude_none=True)
    call = Call(batches.digest_of(arguments | {"retry_of": batch_id}), retry_count, idempotency_key)
    if (made := batches.made_before(yard, caller, call)) is not None:
        return made
    source = _source(yard, caller, batch_id, wanted)
    new = _as_before(source.batch, arguments)
    batches.window_of(new)
    key, stored = _copy(yard, caller, source)
    file_id = ""

    def make(session: Session) -> Batch:
        nonlocal file_id
        upload = Upload(purpose="batch", filename=f"{batch_id}_retry.jsonl")
        file_id = files.add(session, yard, caller, key, stored, upload).id
        batch = batches.build(session, yard, caller, new.model_copy(update={"input_file_id": file_id}))
        batch.retry_of = batch_id
        return batch

    try:
        shown = batches.make_once(yard, caller, call, make)
    except BaseException:
        files.forget(yard, key)
        raise
    if shown.input_file_id != file_id:  # the same call, at the same moment, was quicker
        files.forget(yard, key)
    return shown


def _source(yard: Yard, caller: Caller, batch_id: str, wanted: NewRetry) -> _Source:
    codes = [RowErrorCode.BATCH_EXPIRED.value] if wanted.rows == "expired" else wanted.codes or []
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        check_whole(batch, batch_id)
        _check_ended(batch)
        now = yard.store.now(session)
        content = files.of_batch(session, batch, batch.input_file_id, now, way_out=" Upload it again, as a new batch.")
        is_unread = batch.validated_at is None
        if wanted.rows == "all" or (is_unread and (not codes or matches(_NOT_READ[BatchState(batch.state)], codes))):
            return _Source(batch, content, None, ())
        if batch.error_file_id is None:
            raise _nothing(batch, codes)
        way_out = ' So which rows failed is not known any more; all rows can run again (`--all`, or "rows": "all").'
        errors = files.of_batch(session, batch, batch.error_file_id, now, way_out=way_out)
        return _Source(batch, content, errors, codes)


def _check_ended(batch: Batch) -> None:
    if batch.state not in ENDED:
        raise Conflict(
            f"Batch '{batch.id}' has not ended. Wait for its end, or cancel it; then its rows can run again.",
            code="batch_not_ended",
        )
    if batch.state == BatchState.FAILED and batch.validated_at is None:
        error = batch.errors[0] if batch.errors else {"message": "Its input was refused."}
        first = f"line {error['line']}: {error['message']}" if error.get("line") else error["message"]
        raise Conflict(
            f"Batch '{batch.id}' failed its validation, so none of its rows can run: {first} "
            "Correct the input and create a new batch of it.",
            code="batch_failed",
        )


def _nothing(batch: Batch, codes: Collection[str]) -> Conflict:
    which = f"failed with {', '.join(codes)}" if codes else "failed"
    known = [str(error["code"]) for error in batch.row_errors or []]
    hint = f" Its rows failed with: {', '.join(known)}." if codes and known else ""
    return Conflict(
        f"No row of batch '{batch.id}' {which}, so there is nothing to run again.{hint}", code="no_rows_to_retry"
    )


def _as_before(batch: Batch, arguments: dict[str, Any]) -> NewBatch:
    """Describe a batch that runs as `batch` did, but for what `arguments` say."""
    seconds = batch.output_expires_seconds
    before = {
        "input_file_id": "",
        "endpoint": batch.endpoint,
        "completion_window": batch.completion_window,
        "metadata": batch.meta,
        "output_expires_after": {"anchor": "created_at", "seconds": seconds} if seconds is not None else None,
        "pool": batch.pool,
        "priority": 9 - batch.rank,
        "group": batch.fair_group,
        "unsupported_parameters": "drop" if batch.drop_parameters else "fail",
        "canary_rows": batch.canary_rows,
    }
    return NewBatch.model_validate(before | arguments)


def _copy(yard: Yard, caller: Caller, source: _Source) -> tuple[str, Stored]:
    """Write the rows into a content of their own. Raises Conflict when there are none."""
    pieces = gathered(_rows(yard, source))
    first = next(pieces, None)
    if first is None:
        raise _nothing(source.batch, source.codes)
    key = files.begin(yard, caller)
    try:
        return key, yard.blobs.put(key, chain([first], pieces))
    except BaseException:
        files.forget(yard, key)
        raise


def _rows(yard: Yard, source: _Source) -> Iterator[bytes]:
    """Yield lines of the input with their newline."""
    lines = read_lines(_pieces(yard, *source.input), max_line_bytes=source.input[1].bytes)
    if source.errors is None:
        return (_with_newline(line) for line in lines)
    return _failed(source, lines, as_file(_pieces(yard, *source.errors)))


def _failed(source: _Source, lines: Iterator[Line], errors: BinaryIO) -> Iterator[bytes]:
    with errors:
        error = errors.readline()
        for row, line in enumerate(lines):
            if not error:
                return
            if error.startswith(line_start(source.batch.id, row)):
                if not source.codes or matches(failed_row(error).kind, source.codes):
                    yield _with_newline(line)
                error = errors.readline()
        if error:
            raise LookupError(f"the error file of {source.batch.id} has a line that is of no row of its input")


def _with_newline(line: Line) -> bytes:
    return (line.content or b"") + b"\n"


def _pieces(yard: Yard, file: File, blob: Blob) -> Generator[bytes]:
    """Yield a file's bytes. Raises Conflict, which names it, before any that is not what was written."""
    try:
        yield from damage.pieces(yard, blobs.as_recorded(blob))
    except (BlobDamaged, BlobMissing) as error:
        raise damage.refusal(file, error.what) from error
