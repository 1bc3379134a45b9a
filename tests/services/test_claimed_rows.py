"""A claim's answer brings the rows of small shards along; what it does not bring its worker fetches (PROTOCOL 5)."""

import pytest

from app.db.inputs import input_blob
from app.services import claim_answers
from app.services.context import Yard
from tests.yards import input_row, machine, validated


def text_of(numbers: range) -> str:
    return b"".join(input_row(number) for number in numbers).decode()


def test_the_rows_of_small_shards_come_with_their_leases(yard: Yard) -> None:
    validated(yard, rows=10)
    grants = machine(yard).claim(want=10).grants
    assert [grant.content for grant in grants] == [text_of(range(4)), text_of(range(4, 8)), text_of(range(8, 10))]


def test_a_repeated_claim_brings_them_again(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    first, second = one.claim(request="same"), one.claim(request="same")
    assert first.grants[0].content == text_of(range(4))
    assert first == second


def test_they_are_bounded_for_the_whole_answer(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    validated(yard, rows=12)
    monkeypatch.setattr(claim_answers, "CONTENT_BYTES", len(text_of(range(8))) + 1)
    contents = [grant.content for grant in machine(yard).claim(want=12).grants]
    assert contents == [text_of(range(4)), text_of(range(4, 8)), None]


def test_a_large_first_shard_is_left_to_be_fetched(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    validated(yard, rows=8)
    monkeypatch.setattr(claim_answers, "CONTENT_BYTES", len(text_of(range(4))) - 1)
    assert [grant.content for grant in machine(yard).claim(want=8).grants] == [None, None]


def test_rows_that_cannot_be_read_now_cost_no_lease(yard: Yard) -> None:
    batch_id = validated(yard)
    with yard.store.read() as session:
        yard.blobs.delete(input_blob(session, batch_id))
    (grant,) = machine(yard).claim().grants
    assert grant.content is None


def test_text_beyond_ascii_comes_to_the_byte(yard: Yard) -> None:
    content = "\ufeff".encode() + input_row(0, user="\u2028 \x00 \U0001f600").replace(b"\\u2028", "\u2028".encode())
    validated(yard, content=content)
    (grant,) = machine(yard).claim().grants
    assert (grant.content or "").encode() == content[grant.start : grant.end]
