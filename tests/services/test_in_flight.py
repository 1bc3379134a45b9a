"""What is under way is bounded for each org and in all, and what has ended makes room."""

import pytest

from app.domain.errors import TooManyInFlight
from app.services.in_flight import InFlight


def test_an_org_has_so_many_and_all_of_them_so_many() -> None:
    calls = InFlight("calls", per_org=2, in_all=3)
    calls.begin("a")
    calls.begin("a")
    assert calls.full() == ["a"]
    with pytest.raises(TooManyInFlight, match="2 calls of this org are"):
        calls.begin("a")
    with calls.one("b"):
        with pytest.raises(TooManyInFlight, match="3 calls are"):
            calls.begin("c")
        calls.end("a")
        calls.begin("c")
    assert calls.full() == []
    calls.begin("a")


def test_what_fails_makes_room_all_the_same() -> None:
    calls = InFlight("calls", per_org=1, in_all=1)
    with pytest.raises(ZeroDivisionError), calls.one("a"):
        raise ZeroDivisionError
    with calls.one("b"):
        assert calls.full() == ["b"]
