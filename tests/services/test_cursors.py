"""A cursor is what an answer gave, or a 400: never a number that a database or the interpreter stumbles over."""

import pytest

from app.domain.errors import BadRequest
from app.services.cursors import parse


@pytest.mark.parametrize(("text", "seq"), [(None, 0), ("", 0), ("0", 0), ("17", 17), (str(2**63 - 1), 2**63 - 1)])
def test_what_an_answer_gave_is_read(text: str | None, seq: int) -> None:
    assert parse(text) == seq


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", " 1", str(2**63), "9" * 19, "0" * 5000 + "1", "9" * 5000])
def test_anything_else_is_the_callers_mistake(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(text)
    assert refused.value.param == "after"
