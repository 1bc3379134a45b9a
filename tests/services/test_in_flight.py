"""What is under way is bounded for each org and in all, and what has ended makes room."""

import pytest

from app.domain.errors import TooManyAtOnce
from app.services.in_flight import InFlight


def test_an_org_has_so_many_and_all_of_them_so_many() -> None:
    calls = InFlight("calls", per_org=2, in_all=3)
    calls.begin("a")
    calls.begin("a")
    assert calls.full() == ["a"]
    with pytest.raises(TooManyAtOnce, match="2 calls of this org are"):
        calls.begin("a")
    calls.begin("b")
    with pytest.raises(TooManyAtOnce, match="3 calls are"):
        calls.begin("c")
    calls.end("a")
    calls.begin("c")
    calls.end("b")
    assert calls.full() == []
    calls.begin("a")
