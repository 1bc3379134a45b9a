"""Reading everything that the database refers to, and comparing it with what was written: `gpuyard doctor --contents`.

One block, one page of rows at a time, in no transaction: it may run for hours beside everything else.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlmodel import Session

from app.blobs import checked
from app.blobs.store import BlobDamaged, BlobMissing
from app.db import blobs as blobs_sql
from app.db import files as files_sql
from app.db import jobs as jobs_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Blob
from app.domain.contents import WAY_OUT, ContentKind
from app.domain.rowsets import RowSet
from app.services import blobs, damage
from app.services.context import Yard

PAGE = 200


class State(StrEnum):
    """What a content is."""

    DAMAGED = "damaged"
    MISSING = "missing"
    SOUND_AGAIN = "sound again"
    UNVERIFIABLE = "not verifiable"
    """It was written before checksums of blocks were taken. Its SHA-256 was compared here, and is nowhere else."""


@dataclass(frozen=True, slots=True)
class Found:
    """One content. `of`: whose it is, in words for people; `do`: what helps where it is damaged or gone."""

    state: State
    blob: str
    of: str
    what: str = ""
    do: str = ""


@dataclass(slots=True)
class Totals:
    """What was read."""

    contents: int = 0
    bytes: int = 0
    shards: int = 0
    wrong: int = 0


def check(yard: Yard, totals: Totals) -> Iterator[Found]:
    """Give what is not as it was written, marking it, and what is so again; counts in `totals`.

    Raises BlobUnavailable.
    """
    after = ""
    while True:
        with yard.store.read() as session:
            page = blobs_sql.needed(session, after=after, limit=PAGE)
        for blob in page:
            found = _look(yard, blob)
            totals.contents += 1
            totals.bytes += blob.bytes
            if found is not None:
                totals.wrong += found.state in {State.DAMAGED, State.MISSING}
                yield found
        if len(page) < PAGE:
            break
        after = page[-1].key
    yield from _check_shards(yard, totals)


def _look(yard: Yard, blob: Blob) -> Found | None:
    recorded = blobs.as_recorded(blob)
    try:
        if recorded.is_verifiable:
            checked.verify(yard.blobs, recorded)
        else:
            _compare_digest(yard, blob)
    except BlobDamaged as error:
        damage.note(yard, blob.key, error.what)
        return _found(yard, State.DAMAGED, blob.key, error.what)
    except BlobMissing:
        with yard.store.read() as session:
            is_needed = blobs_sql.is_needed(session, blob.key)
        return _found(yard, State.MISSING, blob.key, "it is gone") if is_needed else None
    if blob.damaged_at is not None:
        yard.store.run(lambda session: blobs_sql.mark_sound(session, blob.key))
        return _found(yard, State.SOUND_AGAIN, blob.key)
    return None if recorded.is_verifiable else _found(yard, State.UNVERIFIABLE, blob.key)


def _compare_digest(yard: Yard, blob: Blob) -> None:
    digest = hashlib.sha256()
    for piece in checked.pieces(yard.blobs, blobs.as_recorded(blob)):
        digest.update(piece)
    if blob.digest not in {None, digest.hexdigest()}:
        raise BlobDamaged("its SHA-256 is not that of what was written", blob.key)


def whose(yard: Yard, key: str) -> str:
    """Say whose a content is, in words for people."""
    with yard.store.read() as session:
        return _owner(session, key)[1]


def _found(yard: Yard, state: State, key: str, what: str = "") -> Found:
    with yard.store.read() as session:
        kind, of = _owner(session, key)
    do = WAY_OUT[kind] if state in {State.DAMAGED, State.MISSING} else ""
    return Found(state, key, of, what, do)


def _owner(session: Session, key: str) -> tuple[ContentKind, str]:
    """Say whose a content is."""
    if (file := files_sql.of_blob(session, key)) is not None:
        of = f"{file.id} ({file.filename})"
        needed_by = [batch.id for batch in files_sql.batches_in_need(session, file.id)]
        return damage.kind_of(file), f"{of} of {', '.join(needed_by[:3])}" if needed_by else of
    segments = segments_sql.of_blob(session, key)
    rows = RowSet()
    for segment in segments:
        rows |= RowSet.parse(segment.rows)
    of = f"rows {rows} of {segments[0].batch_id}" if segments else "a hand-in"
    return ContentKind.SEGMENT, of


def _check_shards(yard: Yard, totals: Totals) -> Iterator[Found]:
    """Compare the inputs of shards that may still run with what was validated."""
    after = 0
    while True:
        with yard.store.read() as session:
            page = [(job, input_blob(session, job.batch_id)) for job in jobs_sql.with_input_sums(session, after, PAGE)]
        for job, key in page:
            totals.shards += 1
            if (what := damage.input_differs(yard, job, key)) is not None:
                totals.wrong += 1
                of = f"rows {RowSet.span(job.first_row, job.rows)} of the input of {job.batch_id}"
                yield Found(State.DAMAGED, key, of, what, WAY_OUT[ContentKind.INPUT])
        if len(page) < PAGE:
            return
        after = page[-1][0].id or 0
