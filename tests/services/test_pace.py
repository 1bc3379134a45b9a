"""How often workers hand in follows how many there are, and how many hand-ins a process is to get a second."""

from dataclasses import replace

import pytest

from app.services.context import Yard
from app.services.pace import HAND_INS_PER_SECOND, LONGEST_SECONDS, WINDOW_SECONDS, Pace
from tests.yards import machine, validated

OWN = 2.0


class Fleet:
    """Shares that hand in as often as they are told, on a clock of their own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = Pace(lambda: self.now)
        self.asked: float | None = None

    def hands_in(self, shares: int, seconds: float) -> float:
        """Let time go by; gives how often they hand in now."""
        end = self.now + seconds
        while self.now < end:
            self.now += (self.asked or OWN) / shares
            self.asked = self.pace.hand_in(OWN)
        return self.asked or OWN


def test_a_few_hand_in_as_often_as_they_were_told_at_first() -> None:
    fleet = Fleet()
    fleet.hands_in(int(HAND_INS_PER_SECOND * OWN * 0.9), 60)
    assert fleet.asked is None


@pytest.mark.parametrize("times", [2, 5, 14])
def test_many_hand_in_so_seldom_that_a_process_gets_what_it_is_to_get(times: int) -> None:
    asked = Fleet().hands_in(int(HAND_INS_PER_SECOND * OWN) * times, 10 * LONGEST_SECONDS)
    assert asked == pytest.approx(OWN * times, rel=0.2)


def test_nobody_is_asked_to_wait_longer_than_what_a_lost_worker_may_cost() -> None:
    assert Fleet().hands_in(int(HAND_INS_PER_SECOND * LONGEST_SECONDS * 3), 300) == LONGEST_SECONDS


def test_those_that_stay_hand_in_often_again() -> None:
    fleet = Fleet()
    assert fleet.hands_in(int(HAND_INS_PER_SECOND * OWN * 8), 100) > OWN
    fleet.hands_in(5, 2 * LONGEST_SECONDS + WINDOW_SECONDS)
    assert fleet.asked is None


def test_the_answer_to_a_hand_in_says_it(yard: Yard) -> None:
    now = 0.0
    yard = replace(yard, pace=Pace(lambda: now))
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    assert one.hand_in(batch_id, {grant.lease_id: [0]}).next_segment_seconds is None
    for _ in range(int(4 * HAND_INS_PER_SECOND * WINDOW_SECONDS)):
        yard.pace.hand_in(OWN)
    now = WINDOW_SECONDS
    asked = one.hand_in(batch_id, {grant.lease_id: [1]}).next_segment_seconds
    assert asked == pytest.approx(4 * yard.limits.segment_seconds, rel=0.1)
