"""Files: announced, written, then made; listed, hidden, and read (PROTOCOL 8, OPENAI_CONTRACT 1.8)."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlmodel import Session

from app.blobs import checked
from app.blobs.checked import Recorded
from app.blobs.sections import pieces_of
from app.blobs.store import BlobDamaged, BlobMissing, Stored
from app.db import blobs as blobs_sql
from app.db import events
from app.db import files as files_sql
from app.db import orgs as orgs_sql
from app.db.tables import Batch, Blob, File, Org
from app.domain.errors import NotFound, TryLater
from app.domain.org_limits import check_quota
from app.schemas.files import FileDeleted, FileObject
from app.schemas.listing import Listing, page
from app.services import blobs, cursors, damage, ids, leases
from app.services.context import Caller, Yard

MAX_FILES_LISTED = 10_000
_MOMENT = "%Y-%m-%d %H:%M:%S UTC"


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload says of its file. `expires_seconds` None: by its purpose's default."""

    purpose: str
    filename: str
    expires_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """Where a file's bytes are. `sha256` names exactly these bytes: a strong ETag.

    `by_lease`: a worker reads it, which checks its own part, so that damage elsewhere keeps none of the others.
    """

    file: File
    recorded: Recorded
    sha256: str
    by_lease: bool

    @property
    def blob_key(self) -> str:
        """The key of its blob."""
        return self.recorded.key


def begin(yard: Yard, caller: Caller) -> str:
    """Commit the row of the blob that an upload is about to write, and give its key (PROTOCOL 5).

    Raises LimitReached for an org that has as many files as it may have: before any of the upload is taken.
    """
    with yard.store.read() as session:
        _check_room(yard, orgs_sql.by_id(session, caller.org_id), 1)
    return blobs.begin(yard, caller.org_id)


def forget(yard: Yard, key: str) -> None:
    """Say that an upload came to nothing."""
    yard.store.run(lambda session: blobs_sql.mark_unreferenced(session, key, yard.store.now(session)))


def create(yard: Yard, caller: Caller, key: str, stored: Stored, upload: Upload) -> FileObject:
    """Make a file of a blob whose content is stored. Raises LimitReached."""
    return yard.store.run(lambda session: shown(add(session, yard, caller, key, stored, upload)))


def add(session: Session, yard: Yard, caller: Caller, key: str, stored: Stored, upload: Upload) -> File:
    """Make a file of a blob whose content is stored, as part of the caller's transaction. Raises LimitReached."""
    now = yard.store.now(session)
    if not blobs.mark_put(session, key, stored, now):
        raise TryLater("the upload took so long that it was cleaned away; send it again", code="upload_expired")
    seconds = upload.expires_seconds
    if seconds is None and upload.purpose == "batch":
        seconds = yard.limits.file_retention_seconds
    file = File(
        id=ids.new("file-"),
        org_id=caller.org_id,
        purpose=upload.purpose,
        filename=upload.filename,
        bytes=stored.bytes,
        blob_key=key,
        created_at=now,
        expires_at=None if seconds is None else now + timedelta(seconds=seconds),
    )
    session.add(file)
    session.flush()
    _note(session, file, "file.created", caller, now)
    _check_room(yard, orgs_sql.lock(session, caller.org_id), stored.bytes)
    orgs_sql.count_file(session, caller.org_id, stored.bytes)
    return file


def retrieve(yard: Yard, caller: Caller, file_id: str) -> FileObject:
    """Show a file. Raises NotFound."""
    with yard.store.read() as session:
        file = files_sql.find(session, file_id, org_id=caller.org_id, now=yard.store.now(session))
        if file is None:
            raise _no_file(file_id)
        return shown(file)


def listed(
    yard: Yard,
    caller: Caller,
    *,
    after: str | None = None,
    limit: int = MAX_FILES_LISTED,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> Listing[FileObject]:
    """List the org's files behind the file `after`. Raises BadRequest for an `after` that never was."""
    with yard.store.read() as session:
        after_seq = cursors.behind(
            after, lambda id_: files_sql.seq_of(session, id_, caller.org_id), "No such File object"
        )
        found = files_sql.page(
            session,
            caller.org_id,
            now=yard.store.now(session),
            limit=limit + 1,
            after_seq=after_seq,
            purpose=purpose,
            ascending=order == "asc",
        )
    data = [shown(file) for file in found[:limit]]
    return page(data, has_more=len(found) > limit)


def delete(yard: Yard, caller: Caller, file_id: str) -> FileDeleted:
    """Hide a file at once; its content stays while a batch that has not ended reads it. Raises NotFound."""

    def work(session: Session) -> FileDeleted:
        now = yard.store.now(session)
        file = files_sql.find(session, file_id, org_id=caller.org_id, now=now, lock=True)
        if file is None:
            raise _no_file(file_id)
        file.hidden_at = now
        session.add(file)
        if not files_sql.in_use(session, file.id):
            blobs_sql.mark_unreferenced(session, file.blob_key, now)
        _note(session, file, "file.deleted", caller, now)
        orgs_sql.discount_files(session, [file])
        return FileDeleted(id=file.id)

    return yard.store.run(work)


def content(yard: Yard, caller: Caller, file_id: str) -> Content:
    """Say where a file's bytes are. A worker's key reads the input of jobs it holds (DESIGN 11).

    Raises NotFound, and Conflict for a content that was found damaged.
    """
    if caller.has("read"):
        with yard.store.read() as session:
            found = files_sql.content(session, file_id, org_id=caller.org_id, now=yard.store.now(session))
        if found is not None:
            return readable(*found)
    if caller.has("worker"):
        return leased_content(yard, caller, file_id)
    raise _no_file(file_id)


def leased_content(yard: Yard, caller: Caller, file_id: str) -> Content:
    """Say where the bytes of an input are that the caller's workers hold shards of. Raises NotFound for any other."""
    found = None
    if leases.may_read(yard, caller, file_id):
        with yard.store.read() as session:
            found = files_sql.content(session, file_id, org_id=None, now=yard.store.now(session))
    if found is None:
        raise _no_file(file_id)
    return readable(*found, by_lease=True)


def of_batch(session: Session, batch: Batch, file_id: str, now: datetime, *, way_out: str = "") -> tuple[File, Blob]:
    """Find a file of a batch, and its blob. Raises NotFound, which says when it was deleted or expired."""
    found = files_sql.content(session, file_id, org_id=None, now=now)
    if found is None:
        raise LookupError(f"{batch.id} names the file {file_id}, which is not there")
    if (gone := _gone(found[0], now)) is not None:
        what = "input" if file_id == batch.input_file_id else "error" if file_id == batch.error_file_id else "output"
        raise NotFound(f"The {what} file '{file_id}' of batch '{batch.id}' {gone}.{way_out}", code="file_gone")
    return found


def readable(file: File, blob: Blob, *, by_lease: bool = False) -> Content:
    """Say where a file's bytes are. Raises Conflict for a content that was found damaged."""
    if blob.damaged_at is not None and not by_lease:
        raise damage.refusal(file, blob.damage or "it is not what was written")
    return Content(file, blobs.as_recorded(blob), blob.digest or "", by_lease)


def check_size(yard: Yard, content: Content, end: int) -> None:
    """Raise Conflict for a content that is gone, or whose length is not what was written.

    A worker is served its part as long as that is there, up to `end`; BlobMissing where it is not.
    """
    recorded = content.recorded
    if content.by_lease:
        found = yard.blobs.size(recorded.key)
        if found < end:
            raise damage.refusal(content.file, f"it has {found} bytes instead of {recorded.bytes}")
        return
    try:
        checked.check_size(yard.blobs, recorded)
    except (BlobDamaged, BlobMissing) as error:
        damage.note(yard, recorded.key, error.what)
        raise damage.refusal(content.file, error.what) from error


def pieces(yard: Yard, content: Content, start: int, end: int) -> Generator[bytes, None, None]:
    """Give a range in pieces, the first of which is read now.

    Raises Conflict when that one is damaged or gone, and BlobUnavailable. What gives the others raises BlobDamaged.
    """
    if content.by_lease:
        return pieces_of(yard.blobs.open(content.blob_key, start, end))
    source = damage.pieces(yard, content.recorded, start, end)
    try:
        first = next(source, b"")
    except (BlobDamaged, BlobMissing) as error:
        damage.note(yard, content.blob_key, error.what)
        raise damage.refusal(content.file, error.what) from error
    return _behind(first, source)


def shown(file: File) -> FileObject:
    """Put a file on the wire."""
    return FileObject(
        id=file.id,
        bytes=file.bytes,
        created_at=int(file.created_at.timestamp()),
        expires_at=int(file.expires_at.timestamp()) if file.expires_at else None,
        filename=file.filename,
        purpose=file.purpose,
    )


def _behind(first: bytes, rest: Iterator[bytes]) -> Generator[bytes, None, None]:
    yield first
    yield from rest


def _check_room(yard: Yard, org: Org | None, size: int) -> None:
    if org is not None:
        check_quota(yard.limits.org, "files", org.files)
        check_quota(yard.limits.org, "file_bytes", org.file_bytes, size)


def _gone(file: File, now: datetime) -> str | None:
    """Say when a file was deleted or expired; None while it is there."""
    if file.expires_at is not None and file.expires_at <= (file.hidden_at or now):
        return f"expired at {file.expires_at:{_MOMENT}}"
    return f"was deleted at {file.hidden_at:{_MOMENT}}" if file.hidden_at is not None else None


def _no_file(file_id: str) -> NotFound:
    return NotFound(f"No such File object: {file_id}", code="file_not_found", param="id")


def _note(session: Session, file: File, kind: str, caller: Caller, now: datetime) -> None:
    data = {"purpose": file.purpose, "bytes": file.bytes}
    events.record(session, now=now, type=kind, subject=file.id, actor=caller.actor, org_id=file.org_id, data=data)
