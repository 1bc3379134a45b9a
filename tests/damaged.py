"""Contents that a disk, or somebody at it, has changed, and a control worker that goes on as the real one does."""

from collections.abc import Callable, Mapping, Sequence

from sqlmodel import select

from app.blobs.local import LocalBlobs
from app.blobs.store import BlobStore
from app.db.inputs import input_blob
from app.db.tables import Segment
from app.services import control
from app.services.context import Yard
from app.services.missing import CONTENT_TRIES
from tests.yards import Controller, batch, later, machine, validated


def flip(content: bytes, at: int) -> bytes:
    """Change one bit."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


WAYS: Mapping[str, Callable[[bytes], bytes]] = {
    "flipped": lambda content: flip(content, len(content) // 2),
    "halved": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "longer": lambda content: content + b"{}\n",
}


SEGMENT_WAYS = ("flipped", "halved", "zeros", "swap", "delete", "folder")
MISSING_WAYS = ("delete", "folder")
"""A content that cannot be read is tried as often as one that is gone."""


def damage(blobs: BlobStore, key: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a stored content; returns what it was."""
    before = blobs.read(key)
    blobs.put(key, [change(before)])
    return before


def swap(blobs: BlobStore, one: str, other: str) -> None:
    """Give two contents each other's place."""
    first = damage(blobs, one, lambda _: blobs.read(other))
    blobs.put(other, [first])


def folder_at(blobs: BlobStore, key: str) -> None:
    """Have a folder where a content was: it cannot be read, as on a bad sector, and its store is there."""
    assert isinstance(blobs, LocalBlobs)
    blobs.mark("store")
    blobs.expect("store")
    (blobs.root / key[:2] / key[2:4] / key).mkdir()


LARGE = 2_500_000
"""Four answers of so many bytes make a shard that is read row by row."""


def damage_second(yard: Yard, segments: Sequence[Segment], how: str) -> set[int]:
    """Damage the second hand-in; give the segments' numbers that are damaged then."""
    keys = [segment.blob_key for segment in segments]
    if how == "swap":
        swap(yard.blobs, keys[1], keys[2])
        return {1, 2}
    if how in MISSING_WAYS:
        yard.blobs.delete(keys[1])
        if how == "folder":
            folder_at(yard.blobs, keys[1])
    else:
        damage(yard.blobs, keys[1], WAYS[how])
    return {1}


def worked_off(yard: Yard, *, rows: int = 12, done: int = 12, large: bool = False) -> tuple[str, list[Segment]]:
    """A batch of shards of four rows; the first `done` rows are handed in, a shard at a time."""
    batch_id = validated(yard, rows=rows)
    one = machine(yard)
    for grant in one.claim(want=rows).grants:
        if grant.first_row < done:
            mine = range(grant.first_row, grant.first_row + grant.rows)
            answer = "x" * LARGE if large and grant.first_row == 4 else "ok"
            one.hand_in(batch_id, {grant.lease_id: mine}, ends=[grant.lease_id], answer=answer)
    return batch_id, stored_segments(yard, batch_id)


def stored_segments(yard: Yard, batch_id: str) -> list[Segment]:
    with yard.store.read() as session:
        return list(session.exec(select(Segment).where(Segment.batch_id == batch_id).order_by("id")))


def input_key(yard: Yard, batch_id: str) -> str:
    with yard.store.read() as session:
        return input_blob(session, batch_id)


def tries(yard: Yard) -> int:
    """Do all control work that is due, and put off what fails; gives how much failed."""
    controller, failed = Controller(yard), 0
    while (grant := controller.claims()) is not None:
        try:
            control.perform(yard, grant)
        except Exception as error:  # noqa: BLE001 - as the control worker's loop does
            control.put_off(yard, grant, error)
            failed += 1
    return failed


def goes_on(yard: Yard, batch_id: str, *, times: int = CONTENT_TRIES) -> str:
    """Let control work have so many tries; gives the batch's state then."""
    for _ in range(times):
        tries(yard)
        later(yard, 61)
    return batch(yard, batch_id).state
