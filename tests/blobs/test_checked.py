"""A checked read gives out what was written, or nothing of the block that is not."""

import os
import tracemalloc
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from app.blobs.checked import Recorded, as_file, pieces, verify
from app.blobs.local import LocalBlobs
from app.blobs.store import BlobDamaged, BlobMissing, new_key
from app.checksums import BLOCK_BYTES, BlockSums, checksum, range_sums
from tests.damaged import WAYS, damage, flip, swap

SIZE = 3 * BLOCK_BYTES + 1000


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs")


def written(blobs: LocalBlobs, content: bytes) -> Recorded:
    key = new_key()
    stored = blobs.put(key, [content[:700_000], content[700_000:]])
    return Recorded(key, stored.bytes, stored.block_sums)


def test_a_stored_checksum_is_the_128_bit_xxh3_of_a_mebibyte() -> None:
    """Contents that are stored are compared by these: another block or sum would call all of them damaged."""
    mebibyte = 2**20
    data = os.urandom(mebibyte + 1)
    sums = BlockSums()
    sums.add(data)
    assert sums.text() == xxhash.xxh3_128_hexdigest(data[:mebibyte]) + xxhash.xxh3_128_hexdigest(data[mebibyte:])


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, SIZE])
def test_what_was_written_is_read(blobs: LocalBlobs, size: int) -> None:
    content = os.urandom(size)
    record = written(blobs, content)
    assert b"".join(pieces(blobs, record)) == content
    verify(blobs, record)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, 1),
        (5, 5),
        (BLOCK_BYTES - 1, BLOCK_BYTES + 1),
        (BLOCK_BYTES, 2 * BLOCK_BYTES),
        (SIZE - 1, SIZE + 9),
        (9, None),
    ],
)
def test_a_range_is_read_and_no_byte_beyond_it(blobs: LocalBlobs, start: int, end: int | None) -> None:
    content = os.urandom(SIZE)
    record = written(blobs, content)
    assert b"".join(pieces(blobs, record, start, end)) == content[start:end]
    with as_file(pieces(blobs, record, start, end)) as file:
        assert file.read(3) + file.readline() + file.read() == content[start:end]


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_is_not_what_was_written_is_damaged(blobs: LocalBlobs, way: str) -> None:
    record = written(blobs, os.urandom(1000))
    damage(blobs, record.key, WAYS[way])
    with pytest.raises(
        BlobDamaged, match="its bytes 0 to 999 are not those" if way in {"flipped", "zeros"} else "bytes"
    ):
        next(pieces(blobs, record))


def test_two_that_were_swapped_are_both_damaged(blobs: LocalBlobs) -> None:
    one, other = (written(blobs, os.urandom(1000)) for _ in range(2))
    swap(blobs, one.key, other.key)
    for record in (one, other):
        with pytest.raises(BlobDamaged):
            verify(blobs, record)


def test_the_blocks_before_the_damage_are_given_and_no_byte_of_its_own(blobs: LocalBlobs) -> None:
    content = os.urandom(SIZE)
    record = written(blobs, content)
    damage(blobs, record.key, lambda old: flip(old, BLOCK_BYTES + 7))
    source = pieces(blobs, record)
    assert next(source) == content[:BLOCK_BYTES]
    with pytest.raises(BlobDamaged, match=f"its bytes {BLOCK_BYTES} to {2 * BLOCK_BYTES - 1} are not those"):
        next(source)
    assert b"".join(pieces(blobs, record, 2 * BLOCK_BYTES)) == content[2 * BLOCK_BYTES :]
    with as_file(pieces(blobs, record)) as file, pytest.raises(BlobDamaged):
        file.read()


def test_what_was_written_without_checksums_is_read_as_it_is_and_its_length_compared(blobs: LocalBlobs) -> None:
    record = written(blobs, b"abc")
    old = Recorded(record.key, 3, None)
    assert (record.is_verifiable, old.is_verifiable) == (True, False)
    damage(blobs, record.key, lambda _: b"abd")
    assert b"".join(pieces(blobs, old)) == b"abd"
    damage(blobs, record.key, lambda _: b"ab")
    with pytest.raises(BlobDamaged, match="2 bytes instead of 3"):
        verify(blobs, old)


def test_a_missing_content_is_missing(blobs: LocalBlobs) -> None:
    with pytest.raises(BlobMissing):
        next(pieces(blobs, Recorded(new_key(), 3, "")))


def test_memory_is_some_blocks_however_long_the_content_is(blobs: LocalBlobs) -> None:
    key = new_key()
    block = os.urandom(BLOCK_BYTES)
    stored = blobs.put(key, (block for _ in range(40)))
    tracemalloc.start()
    try:
        with as_file(pieces(blobs, Recorded(key, stored.bytes, stored.block_sums))) as file:
            while file.readline():
                pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * BLOCK_BYTES, peak


@given(data=st.data(), content=st.binary(max_size=200), step=st.integers(1, 50), offset=st.integers(0, 20))
def test_sums_of_ranges_are_those_of_their_bytes(data: st.DataObject, content: bytes, step: int, offset: int) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    ranges = [(start, end) for start, end in zip(cuts[::2], cuts[1::2], strict=False) if start < end]
    chunks = (content[at : at + step] for at in range(0, len(content), step))
    moved = [(start + offset, end + offset) for start, end in ranges]
    assert range_sums(chunks, moved, offset=offset) == [checksum(content[start:end]) for start, end in ranges]
