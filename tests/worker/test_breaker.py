"""When rows may start on a runtime that failed, and what a probe has to say in it."""

import math

import pytest

from app.worker.breaker import FAILURES, FIRST_PAUSE_SECONDS, FIRST_REST_SECONDS, LONGEST_PAUSE_SECONDS, Breaker
from tests.worker.units import Clock

DOWN = 300.0


def made() -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(clock, DOWN, chance=lambda _low, _high: 1.0), clock


def fail(breaker: Breaker, times: int = FAILURES) -> None:
    for _ in range(times):
        breaker.failed("no connection")


def try_it(breaker: Breaker, clock: Clock) -> tuple[float, int]:
    """Wait for the next trial and start it; gives how long the wait was, and the trial's number."""
    began = clock.now
    while not breaker.may_start():
        clock.now = breaker.next_at
        breaker.look()
    trial = breaker.start()
    assert trial
    return clock.now - began, trial


def test_it_opens_after_failures_in_a_row_and_not_with_an_answer_between() -> None:
    breaker, _ = made()
    fail(breaker, FAILURES - 1)
    breaker.answered()
    fail(breaker, FAILURES - 1)
    assert breaker.may_start()
    fail(breaker, 1)
    assert (breaker.may_start(), breaker.reason) == (False, "no connection")


def test_open_it_lets_one_row_through_at_a_time_and_waits_longer_after_each() -> None:
    breaker, clock = made()
    fail(breaker)
    waits = []
    for _ in range(8):
        wait, trial = try_it(breaker, clock)
        waits.append(wait)
        assert not breaker.may_start()  # one is out
        breaker.failed("still", trial=trial)
    assert waits[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert waits[-1] == LONGEST_PAUSE_SECONDS


def test_an_answer_closes_it_and_forgets() -> None:
    breaker, clock = made()
    fail(breaker)
    try_it(breaker, clock)
    breaker.answered()
    assert (breaker.is_closed, breaker.reason, breaker.next_at) == (True, "", math.inf)
    fail(breaker, FAILURES - 1)
    assert breaker.may_start()


def test_rows_of_before_that_fail_late_are_no_trial() -> None:
    breaker, clock = made()
    fail(breaker)
    try_it(breaker, clock)
    fail(breaker, 20)
    assert not breaker.may_start()
    breaker.answered()
    assert breaker.is_closed


def test_a_trial_that_says_nothing_makes_room_for_another() -> None:
    breaker, clock = made()
    fail(breaker)
    _, trial = try_it(breaker, clock)
    breaker.given_up(trial)
    assert breaker.may_start()


@pytest.mark.parametrize("end", ["fails", "is given up"])
def test_a_trial_that_outlives_its_outage_makes_no_room_for_a_second(end: str) -> None:
    breaker, clock = made()
    fail(breaker)
    _, old = try_it(breaker, clock)
    breaker.answered()  # another row was
    fail(breaker)
    _, trial = try_it(breaker, clock)
    breaker.failed("late", trial=old) if end == "fails" else breaker.given_up(old)
    clock.now += LONGEST_PAUSE_SECONDS
    assert not breaker.may_start()
    breaker.failed("still", trial=trial)
    try_it(breaker, clock)


def test_what_the_runtime_asked_for_is_waited_for() -> None:
    breaker, clock = made()
    fail(breaker, FAILURES - 1)
    breaker.failed("busy", not_before=40.0)
    assert try_it(breaker, clock)[0] == 40.0


class TestTheProbe:
    def test_that_finds_nobody_opens_it_at_once_and_has_nothing_tried(self) -> None:
        breaker, clock = made()
        breaker.died("refused")
        clock.now = 100.0
        assert (breaker.may_start(), breaker.reason) == (False, "refused")

    def test_that_finds_it_again_closes_what_a_probe_opened(self) -> None:
        breaker, _ = made()
        breaker.died("refused")
        breaker.lives()
        assert breaker.is_closed

    def test_alone_closes_nothing_that_rows_opened(self) -> None:
        breaker, _ = made()
        fail(breaker)
        breaker.lives()
        assert not breaker.may_start()
        breaker.died("refused")
        breaker.lives()
        assert not breaker.is_closed
        assert breaker.may_start()  # it came back: worth a trial now
        assert breaker.start()

    def test_wins_over_a_row_that_was_answered_before_it_looked(self) -> None:
        breaker, _ = made()
        breaker.died("refused")
        breaker.answered()
        assert not breaker.may_start()
        breaker.lives()
        assert breaker.is_closed


class TestDown:
    def test_it_goes_when_open_for_long_even_with_a_trial_that_hangs(self) -> None:
        breaker, clock = made()
        fail(breaker)
        try_it(breaker, clock)
        assert breaker.next_at == DOWN
        clock.now = DOWN
        assert breaker.look()
        assert breaker.is_down
        assert not breaker.may_start()

    def test_it_comes_back_on_probation_and_goes_again_at_the_first_failure(self) -> None:
        breaker, clock = made()
        fail(breaker)
        clock.now = DOWN
        breaker.look()
        rests = []
        for _ in range(3):
            rest, trial = try_it(breaker, clock)
            rests.append(rest)
            assert not breaker.is_down
            breaker.failed("still", trial=trial)
            assert breaker.is_down
        assert rests == [FIRST_REST_SECONDS, 2 * FIRST_REST_SECONDS, 4 * FIRST_REST_SECONDS]
        try_it(breaker, clock)
        breaker.answered()
        assert breaker.is_closed

    def test_a_trial_that_is_still_out_on_probation_stays_the_only_one(self) -> None:
        breaker, clock = made()
        fail(breaker)
        _, hanging = try_it(breaker, clock)
        clock.now = DOWN
        breaker.look()
        clock.now = breaker.next_at
        assert breaker.look()
        assert (breaker.is_down, breaker.may_start()) == (False, False)
        breaker.given_up(hanging)
        assert breaker.may_start()

    def test_a_dead_one_rests_until_the_probe_finds_it(self) -> None:
        breaker, clock = made()
        fail(breaker)
        breaker.died("refused")
        clock.now = DOWN
        assert breaker.look()
        assert breaker.next_at == math.inf
        breaker.lives()
        assert not breaker.is_down
        assert breaker.may_start()
