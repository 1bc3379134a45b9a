"""How many rows a second a share finishes: what a claim asks for, and what people are told."""

import pytest

from app.worker.rate import BUCKET_SECONDS, RateMeter
from tests.worker.units import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rate(clock: Clock) -> RateMeter:
    return RateMeter(clock)


def run_rows(rate: RateMeter, clock: Clock, *, rows: int, per_second: float) -> None:
    for _ in range(rows):
        clock.now += 1 / per_second
        rate.count()


@pytest.mark.parametrize("phase", [0.01, 0.13, 0.24])
def test_a_steady_rate_is_told_as_it_is_at_whatever_moment_it_is_asked(
    rate: RateMeter, clock: Clock, phase: float
) -> None:
    clock.now += phase
    run_rows(rate, clock, rows=4000, per_second=400)
    assert rate.per_second() == pytest.approx(400, rel=0.02)


def test_a_young_one_looks_at_its_whole_life_and_says_so(rate: RateMeter, clock: Clock) -> None:
    run_rows(rate, clock, rows=100, per_second=100)
    assert rate.is_young
    assert rate.per_second() == pytest.approx(100, rel=0.02)
    run_rows(rate, clock, rows=100, per_second=100)
    assert not rate.is_young


def test_the_very_first_rows_are_no_rate_beyond_measure(rate: RateMeter, clock: Clock) -> None:
    run_rows(rate, clock, rows=3, per_second=1e6)
    assert rate.per_second() == 3 / BUCKET_SECONDS


def test_what_ended_more_than_two_seconds_ago_does_not_count(rate: RateMeter, clock: Clock) -> None:
    run_rows(rate, clock, rows=1000, per_second=500)
    clock.now += 1.0
    assert 0 < rate.per_second() < 300
    clock.now += 1.5
    assert rate.per_second() == 0
