"""The bytes of a hand-in as they come: what each part is worth is known before the first of them (PROTOCOL 5).

Parts of live leases are checked line by line and written; of a part that is stored already only the digest is taken;
one whose lease has ended is passed over. None of it is ever whole in memory.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256

from app.blobs.store import BlobWriter, Stored
from app.db import blobs as blobs_sql
from app.domain.errors import BadRequest, TooLarge
from app.domain.jobs import MAX_SHARD_ROWS
from app.domain.rowsets import RowSet
from app.schemas.handins import HandInError, HandInReader
from app.schemas.segments import MAX_BYTES, HandInHeader, Part
from app.services import blobs
from app.services.context import Yard


class Use(Enum):
    """What the bytes of a part are for."""

    STORE = auto()
    COMPARE = auto()
    NOTHING = auto()


class PartBytes:
    """One part. `start` is where its bytes begin in the hand-in's blob; `digest` is their SHA-256, "" if not taken."""

    def __init__(self, batch_id: str, part: Part, use: Use, start: int) -> None:
        self.part = part
        self.use = use
        self.start = start
        self.rows = _declared_rows(part)
        self.digest = ""
        self.left = part.length
        self._hash = sha256()
        self._reader = HandInReader(batch_id, max_rows=len(self.rows))

    def feed(self, piece: bytes) -> None:
        """Take the next of its bytes. Raises BadRequest when they are not what the header says."""
        self.left -= len(piece)
        if self.use is Use.NOTHING:
            return
        self._hash.update(piece)
        if self.use is Use.STORE:
            try:
                self._reader.feed(piece)
            except HandInError as error:
                raise invalid(self.part, str(error)) from error

    def close(self) -> None:
        """Check what can be checked at its end only. Raises as `feed` does."""
        if self.use is Use.NOTHING:
            return
        self.digest = self._hash.hexdigest()
        if self.use is Use.COMPARE:
            return
        try:
            self._reader.close()
        except HandInError as error:
            raise invalid(self.part, str(error)) from error
        if RowSet.of(self._reader.rows) != self.rows or sum(self._reader.rows.values()) != self.part.completed:
            raise invalid(self.part, "rows or counts differ from its lines")


@dataclass(frozen=True, slots=True)
class Written:
    """The blob with the parts that were written."""

    key: str
    stored: Stored


class Body:
    """All parts of one hand-in, fed in the order in which they come. Used by one thread at a time."""

    def __init__(self, yard: Yard, org_id: str, batch_id: str, parts: Sequence[Part], uses: Mapping[int, Use]) -> None:
        self.parts: list[PartBytes] = []
        start = 0
        for part in parts:
            self.parts.append(PartBytes(batch_id, part, uses[part.lease_id], start))
            start += part.length if self.parts[-1].use is Use.STORE else 0
        self._yard = yard
        self._org_id = org_id
        self._open = iter(self.parts)
        self._part = next(self._open, None)
        self._key: str | None = None
        self._writer: BlobWriter | None = None

    @property
    def is_read(self) -> bool:
        """Whether the bytes matter to anybody."""
        return any(part.use is not Use.NOTHING for part in self.parts)

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. Raises BadRequest when they are not what the header says."""
        kept: list[bytes] = []
        at = 0
        while at < len(piece):
            part = self._unfinished()
            if part is None:
                raise _other_length()
            own = piece[at : at + part.left]
            part.feed(own)
            if part.use is Use.STORE:
                kept.append(own)
            at += len(own)
        self._unfinished()  # the end of a part is checked before anything of it is written
        if kept:
            self._written().write(b"".join(kept))

    def finish(self) -> Written | None:
        """Commit what was written; None when no part is to be stored. Raises as `feed` does."""
        if self.is_read and self._unfinished() is not None:
            raise _other_length()
        if not any(part.use is Use.STORE for part in self.parts):
            return None
        stored = self._written().commit()
        return Written(self._key or "", stored)

    def keep(self) -> None:
        """Leave to the database what becomes of the blob: its row says so now."""
        self._key = self._writer = None

    def abort(self) -> None:
        """Forget what was written: the hand-in is not stored."""
        if self._writer is not None:
            self._writer.abort()
        key = self._key
        if key is not None:
            now = self._yard.store.now
            self._yard.store.run(lambda session: blobs_sql.mark_unreferenced(session, key, now(session)))

    def _unfinished(self) -> PartBytes | None:
        """Return the part whose bytes come next, after those that have ended."""
        while self._part is not None and not self._part.left:
            self._part.close()
            self._part = next(self._open, None)
        return self._part

    def _written(self) -> BlobWriter:
        if self._writer is None:
            self._key = blobs.begin(self._yard, self._org_id)
            self._writer = self._yard.blobs.writer(self._key)
        return self._writer


def check_header(header: HandInHeader) -> None:
    """Raise BadRequest for a header that no honest worker writes, TooLarge for parts that no body holds."""
    if len({end.lease_id for end in header.ends}) != len(header.ends):
        raise BadRequest("a hand-in ends a lease once", code="invalid_hand_in")
    if len({part.lease_id for part in header.parts}) != len(header.parts):
        raise BadRequest("a hand-in holds one part a lease", code="invalid_hand_in")
    if sum(part.length for part in header.parts) > MAX_BYTES:
        raise TooLarge(f"a hand-in has at most {MAX_BYTES} bytes; send fewer rows", code="too_large")


def uses_of(parts: Sequence[Part], *, live: Collection[int], known: Collection[tuple[int, int]]) -> dict[int, Use]:
    """Say of each part, by its lease, what its bytes are for."""
    return {
        part.lease_id: Use.STORE
        if part.lease_id in live
        else Use.COMPARE
        if (part.lease_id, part.seq) in known
        else Use.NOTHING
        for part in parts
    }


def invalid(part: Part, why: str) -> BadRequest:
    """Say what is wrong with a part."""
    return BadRequest(f"part of lease {part.lease_id}: {why}", code="invalid_hand_in")


def _declared_rows(part: Part) -> RowSet:
    try:
        rows = RowSet.parse(part.rows)
        count = len(rows)
    except (ValueError, OverflowError) as error:
        raise invalid(part, str(error)) from error
    if count != part.completed + part.failed:
        raise invalid(part, "its rows are not as many as its counts say")
    if count > MAX_SHARD_ROWS:
        raise invalid(part, f"a shard has at most {MAX_SHARD_ROWS} rows")
    return rows


def _other_length() -> BadRequest:
    return BadRequest("the parts' lengths do not add up to the body's", code="invalid_hand_in")
