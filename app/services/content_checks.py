"""Reading everything that the database refers to, and comparing it with what was written: `gpuyard doctor --contents`.

One block, one page of rows at a time, in no transaction: it may run for hours beside everything else.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sqlmodel import Session

from app.blobs import checked
from app.blobs.store import BlobDamaged, BlobMissing
from app.db import batches as batches_sql
from app.db import blobs as blobs_sql
from app.db import files as files_sql
from app.db import jobs as jobs_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Blob
from app.domain.batches import ENDED
from app.domain.contents import ContentKind, for_operators
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
    except BlobMissing as error:
        with yard.store.read() as session:
            is_needed = blobs_sql.is_needed(session, blob.key)
        return _found(yard, State.MISSING, blob.key, error.what) if is_needed else None
    if blob.damaged_at is not None:
        damage.note_sound(yard, blob.key)
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
        return _owner(session, key).words


def _found(yard: Yard, state: State, key: str, what: str = "") -> Found:
    with yard.store.read() as session:
        owner = _owner(session, key)
    do = ""
    if state in {State.DAMAGED, State.MISSING}:
        do = for_operators(owner.kind, place(key), batch_has_ended=owner.has_ended)
    return Found(state, key, owner.words, what, do)


class _Owner(NamedTuple):
    """Whose a content is. `has_ended`: the batch that it was handed in for."""

    kind: ContentKind
    words: str
    has_ended: bool = False


def _owner(session: Session, key: str) -> _Owner:
    if (file := files_sql.of_blob(session, key)) is not None:
        of = f"{file.id} ({file.filename})"
        needed_by = [batch.id for batch in files_sql.batches_in_need(session, file.id)]
        return _Owner(damage.kind_of(file), f"{of} of {', '.join(needed_by[:3])}" if needed_by else of)
    segments = segments_sql.of_blob(session, key)
    if not segments:
        return _Owner(ContentKind.SEGMENT, "stored rows of no batch")
    rows = RowSet()
    for segment in segments:
        rows |= RowSet.parse(segment.rows)
    batch = batches_sql.by_id(session, segments[0].batch_id)
    has_ended = batch is not None and batch.state in ENDED
    return _Owner(
        ContentKind.SEGMENT, f"stored rows {rows.from_one} of {segments[0].batch_id} (the first is 1)", has_ended
    )


def place(key: str) -> str:
    """Return the path of a content in the data folder."""
    return f"blobs/{key[:2]}/{key[2:4]}/{key}"


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
                of = f"input rows {RowSet.span(job.first_row, job.rows).from_one} of {job.batch_id} (the first is 1)"
                yield Found(State.DAMAGED, key, of, what, for_operators(ContentKind.INPUT, place(key)))
        if len(page) < PAGE:
            return
        after = page[-1][0].id or 0
