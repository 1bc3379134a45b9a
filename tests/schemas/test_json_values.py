"""How many values a JSON text has."""

import json

import pytest

from app.schemas.json_values import has_more_values

MOST = 1000


@pytest.mark.parametrize("value", ["1", '""', "{}", "[]", "null", '"a\\\\"', '"\\""', '{"a":1}', '"\\\\\\""'])
def test_values_are_counted_whatever_they_are(value: str) -> None:
    assert not has_more_values(f"[{','.join([value] * (MOST // 3))}]".encode(), MOST)
    assert has_more_values(f"[{','.join([value] * (MOST + 1))}]".encode(), MOST)
    assert has_more_values(f"[{','.join([value] * (MOST + 1))}]".encode("utf-16"), MOST)


@pytest.mark.parametrize("before", ['"\\""', '"\\\\"', '"\\\\\\""', '"{"'])
def test_a_string_before_them_hides_none(before: str) -> None:
    assert has_more_values(f"[{before},{','.join(['{}'] * (MOST + 1))}]".encode(), MOST)


def test_what_is_inside_of_strings_is_none() -> None:
    text = json.dumps({"rows": [",[{" * MOST, '\\",' * MOST, ",\\"]}).encode()
    assert not has_more_values(text, MOST)


def test_a_list_in_a_list_is_a_value() -> None:
    assert has_more_values(b"[" * 10 * MOST, MOST)
