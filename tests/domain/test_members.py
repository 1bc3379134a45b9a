"""A body's members are found where they stand, and what is left of it stays as it was written."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.domain.members import members, without

KEYS = st.text(max_size=3) | st.sampled_from(["n", "model", 'a"b', "\\", "\u2028"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


def test_what_is_left_keeps_its_numbers_its_spaces_and_its_escapes() -> None:
    long = "9" * 5000
    body = f'{{ "n" : 2 , "a":1.0e2,\t"b" :{{"n": 1}} ,"n":3,"c":"\\u00e9","d":{long} }}'.encode()
    assert without(body, {"n"}) == f'{{"a":1.0e2,"b" :{{"n": 1}},"c":"\\u00e9","d":{long}}}'.encode()
    assert without(body, {"n", "a", "b", "c", "d"}) == b"{}"


def test_a_key_is_known_by_what_it_says_not_by_how_it_is_spelled() -> None:
    assert without(b'{"\\u006e":2,"m":1}', {"n"}) == b'{"m":1}'


@given(st.dictionaries(KEYS, VALUES, max_size=5), st.sets(KEYS), st.sampled_from([None, 0, 3]), st.booleans())
def test_leaving_members_out_is_what_leaving_keys_out_is(
    value: dict[str, Any], keys: set[str], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = json.dumps(value, indent=indent)
    assert [member.key for member in members(text)] == list(value)
    left = {key: inner for key, inner in value.items() if key not in keys}
    assert json.loads(without(text.encode(), keys)) == left
