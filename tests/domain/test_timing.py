"""The ladder of silence: its rungs stand in order, and each edge is exact."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.timing import Timing, TimingInvalid

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def test_the_rungs_of_the_defaults() -> None:
    timing = Timing()
    assert timing.self_stop_seconds == 280
    assert timing.lease_end(NOW) == NOW + seconds(300)
    assert timing.stop_end(NOW) == NOW + seconds(30)
    assert Timing(stop_grace_seconds=7).stop_end(NOW) == NOW + seconds(7)
    assert (timing.unreachable(seconds(50)), timing.unreachable(seconds(50.001))) == (False, True)
    assert (timing.stale(seconds(60)), timing.stale(seconds(60.001))) == (False, True)


def test_a_worker_stops_itself_before_its_lease_can_be_given_away() -> None:
    """With the slowest child: the stop, the kill after it, and a second to spare end before the lease does."""
    timing = Timing()
    assert timing.self_stop_seconds + timing.kill_after_seconds + 1 < timing.toleration_seconds


@pytest.mark.parametrize(
    ("rungs", "valid"),
    [
        ({"renew_seconds": 10, "grace_seconds": 24.9}, False),
        ({"renew_seconds": 10, "grace_seconds": 25}, True),
        ({"renew_seconds": 10, "grace_seconds": 25, "sweep_seconds": 5.1}, False),
        ({"renew_seconds": 6, "grace_seconds": 6.01}, False),
        ({"renew_seconds": 0}, False),
        ({"toleration_seconds": math.nan}, False),
        ({"toleration_seconds": math.inf}, False),
        ({"toleration_seconds": 604_800}, True),
        ({"toleration_seconds": 604_800.1}, False),
        ({"grace_seconds": 86_400, "toleration_seconds": 604_800}, True),
        ({"grace_seconds": 86_400.1, "toleration_seconds": 604_800}, False),
        ({"grace_seconds": 280}, False),
        ({"grace_seconds": 279.9}, True),
        ({"toleration_seconds": 70}, False),
        ({"toleration_seconds": 70.1}, True),
        ({"kill_after_seconds": 19}, False),
        ({"kill_after_seconds": 18.9}, True),
    ],
)
def test_the_edges_of_the_order(rungs: dict[str, Any], valid: bool) -> None:
    if valid:
        Timing(**rungs)
    else:
        with pytest.raises(TimingInvalid):
            Timing(**rungs)


def test_a_long_grace_makes_stale_no_earlier_than_unreachable() -> None:
    timing = Timing(grace_seconds=120)
    assert not timing.stale(seconds(119))
    assert timing.stale(seconds(121))


RUNGS = ("renew_seconds", "grace_seconds", "toleration_seconds")


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ((6, 20, 60), (6, 20, 60)),
        ((10, 25, 45.1), (10, 25, 45.1)),
        ((10, 20, 60), (10, 25, 60)),
        ((6, 6.01, 60), (6, 17, 60)),
        ((10, 20, 40.1), (10, 25, 46)),
        ((6, 1e300, 1e301), (6, 86_400, 604_800)),
        ((0.001, 1, 5), (1, 7, 10)),
        ((1e9, 2e9, 1e10), (3_600, 86_400, 604_800)),
        ((10**400, 10**400, 10**400), (3_600, 86_400, 604_800)),
        ((math.nan, None, "60"), (10, 50, 300)),
        ((-1, -1, -1), (1, 7, 10)),
    ],
)
def test_stored_rungs_are_read_as_the_nearest_legal_ones(
    stored: tuple[Any, ...], read: tuple[float, float, float]
) -> None:
    found = Timing().nearest(dict(zip(RUNGS, stored, strict=True)))
    assert tuple(found.rungs.values()) == read
    assert found.nearest(found.rungs) == found


def test_rungs_that_are_missing_are_the_services() -> None:
    assert Timing().nearest({"grace_seconds": 60}).rungs == {**Timing().rungs, "grace_seconds": 60}
