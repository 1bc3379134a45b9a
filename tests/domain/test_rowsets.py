"""Sets of rows behave like sets, and their text is one form only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.rowsets import RowSet

ROWS = st.sets(st.integers(0, 60))


@given(ROWS, ROWS)
def test_they_behave_like_sets(a: set[int], b: set[int]) -> None:
    first, second = RowSet.of(a), RowSet.of(b)
    assert set(first | second) == a | b
    assert set(first - second) == a - b
    assert first.isdisjoint(second) == a.isdisjoint(b)
    assert (len(first), list(first)) == (len(a), sorted(a))
    assert all((row in first) == (row in a) for row in range(62))


@given(ROWS, ROWS)
def test_equal_sets_are_equal_however_they_were_made(a: set[int], b: set[int]) -> None:
    assert (RowSet.of(a) | RowSet.of(b)) == RowSet.of(a | b)
    assert RowSet.of(a) - RowSet.of(b) == RowSet.of(a - b)


@given(ROWS)
def test_the_text_form_comes_back(rows: set[int]) -> None:
    assert RowSet.parse(str(RowSet.of(rows))) == RowSet.of(rows)


@given(st.text(alphabet="0123456789-, ²x", max_size=12))
def test_any_other_text_is_refused(text: str) -> None:
    try:
        found = RowSet.parse(text)
    except ValueError:
        return
    assert str(found) == text


@pytest.mark.parametrize("text", ["1,0", "0-0", "0,1", "0-2,2", "3-1", "-1", "1-", "00", "1,", " 1", "0-1,2"])
def test_what_str_would_not_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="row"):
        RowSet.parse(text)


def test_a_span_of_nothing_is_empty() -> None:
    assert RowSet.span(5, 0) == RowSet()
    assert list(RowSet.span(5, 2)) == [5, 6]
