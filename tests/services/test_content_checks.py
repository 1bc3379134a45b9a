"""What `gpuyard doctor --contents` reads, and what it finds."""

import pytest
from sqlmodel import select

from app.db.tables import Blob, File, Segment
from app.domain.errors import Conflict
from app.services import files
from app.services.content_checks import Found, State, Totals, check
from app.services.context import Yard
from tests.damaged import WAYS, damage, flip
from tests.services.test_damaged_inputs import input_of, told
from tests.yards import USER, Controller, batch, events, input_file, machine, validated


def checked(yard: Yard) -> tuple[list[Found], Totals]:
    totals = Totals()
    return list(check(yard, totals)), totals


def running(yard: Yard) -> tuple[str, str]:
    """A batch with a stored hand-in and a shard to run; gives its id and the hand-in's blob."""
    batch_id, one = validated(yard, rows=8), machine(yard)
    one.finish(batch_id, one.claim(want=4).grants[0])
    with yard.store.read() as session:
        (key,) = set(session.exec(select(Blob.key))) - {input_of(yard, batch_id).key}
    return batch_id, key


def test_what_was_written_is_found_well(yard: Yard) -> None:
    running(yard)
    input_file(yard, 3)
    found, totals = checked(yard)
    assert (found, totals.contents, totals.shards, totals.wrong) == ([], 3, 1, 0)
    assert totals.bytes > 0


@pytest.mark.parametrize("way", WAYS)
def test_what_is_damaged_is_named_marked_and_sound_again_once_it_was_put_back(yard: Yard, way: str) -> None:
    batch_id, key = running(yard)
    source = input_of(yard, batch_id).key
    good = {each: damage(yard.blobs, each, WAYS[way]) for each in (key, source)}
    found, totals = checked(yard)
    by_blob = {each.blob: each for each in found if "rows 5-8" not in each.of}
    assert by_blob.keys() == {key, source}
    assert {each.state for each in found} == {State.DAMAGED}
    assert by_blob[key].of == f"stored rows 1-4 of {batch_id} (the first is 1)"
    file_id = batch(yard, batch_id).input_file_id
    assert by_blob[source].of == f"{file_id} (input.jsonl) of {batch_id}"
    assert f"restore blobs/{source[:2]}/{source[2:4]}/{source} of the data folder" in by_blob[source].do
    assert "uploads the file again" in by_blob[source].do
    assert totals.wrong == len(found)
    assert {frozenset(data) for data in told(yard, batch_id)} == {
        frozenset({"file", "what"}),
        frozenset({"segments", "rows", "what"}),
    }
    with pytest.raises(Conflict, match="is damaged"):
        files.content(yard, USER, file_id)
    for each, content in good.items():
        yard.blobs.put(each, [content])
    found, totals = checked(yard)
    assert ({each.state for each in found}, len(found), totals.wrong) == ({State.SOUND_AGAIN}, 2, 0)
    assert b"".join(files.pieces(yard, files.content(yard, USER, file_id), 0, 10**9)) == good[source]
    assert checked(yard)[0] == []
    assert events(yard, batch_id).count("batch.repaired") == 2


def test_a_file_of_no_batch_that_was_put_back_is_recorded_once_as_repaired(yard: Yard) -> None:
    file_id = input_file(yard, 2)
    key = files.content(yard, USER, file_id).blob_key
    good = damage(yard.blobs, key, WAYS["flipped"])
    checked(yard)
    yard.blobs.put(key, [good])
    checked(yard)
    checked(yard)
    assert events(yard, file_id)[-2:] == ["file.damaged", "file.repaired"]


def test_nothing_is_to_be_done_about_stored_rows_whose_batch_has_its_result_files(yard: Yard) -> None:
    batch_id, one = validated(yard, rows=4), machine(yard)
    one.finish(batch_id, one.claim(want=4).grants[0])
    Controller(yard).works()
    with yard.store.read() as session:
        (key,) = session.exec(select(Segment.blob_key).where(Segment.batch_id == batch_id)).all()
        output = batch(yard, batch_id).output_file_id
        (result,) = session.exec(select(File.blob_key).where(File.id == output)).all()
    damage(yard.blobs, key, WAYS["flipped"])
    (found,) = checked(yard)[0]
    assert (found.blob, found.do.partition(",")[0]) == (key, "nothing")
    damage(yard.blobs, result, WAYS["flipped"])
    by_blob = {each.blob: each for each in checked(yard)[0]}
    assert "stored rows" in by_blob[result].do
    assert "operator" not in by_blob[result].do, "who reads this is the operator"


def test_the_shards_whose_input_is_damaged_are_named(yard: Yard) -> None:
    batch_id = validated(yard, rows=12)
    content = yard.blobs.read(input_of(yard, batch_id).key)
    damage(yard.blobs, input_of(yard, batch_id).key, lambda old: flip(old, len(content) // 2))
    found, totals = checked(yard)
    assert [each.of for each in found][1:] == [f"input rows 5-8 of {batch_id} (the first is 1)"]
    assert (totals.shards, totals.wrong) == (3, 2)


def test_what_is_gone_is_missing_unless_nothing_needs_it(yard: Yard) -> None:
    kept, gone = input_file(yard, 1), input_file(yard, 2)
    for file_id in (kept, gone):
        yard.blobs.delete(files.content(yard, USER, file_id).blob_key)
    files.delete(yard, USER, gone)
    found, totals = checked(yard)
    assert [(each.state, each.of) for each in found] == [(State.MISSING, f"{kept} (input.jsonl)")]
    assert totals.wrong == 1


def test_what_was_written_before_checksums_says_so_and_is_compared_by_its_sha256(yard: Yard) -> None:
    keys = [files.content(yard, USER, input_file(yard, rows)).blob_key for rows in (1, 2)]
    with yard.store.begin() as session:
        for blob in session.exec(select(Blob)):
            blob.block_sums = None
            session.add(blob)
    damage(yard.blobs, keys[0], WAYS["zeros"])
    found, totals = checked(yard)
    assert {each.blob: each.state for each in found} == {keys[0]: State.DAMAGED, keys[1]: State.UNVERIFIABLE}
    assert totals.wrong == 1


def test_it_reads_more_than_a_page(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.content_checks.PAGE", 2)
    validated(yard, rows=20)
    for rows in range(1, 5):
        input_file(yard, rows)
    found, totals = checked(yard)
    assert (found, totals.contents, totals.shards) == ([], 5, 5)
