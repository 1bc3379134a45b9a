"""PROTOCOL 6: who runs a pass is elected in the database; when nobody ran one for long, whoever notices does."""

import threading
import time
from collections.abc import Callable

import pytest

from app.services.context import Yard
from app.sweeps.election import SWEEPS, overdue, run_pass
from app.sweeps.sweeper import Sweeper
from tests.interleaving import doing, held
from tests.yards import later, machine, validated

PERIODS = dict.fromkeys(SWEEPS, 5.0)


def test_of_two_runners_one_runs_the_pass(yard: Yard) -> None:
    with held(
        yard.store, lambda: run_pass(yard, "requeue", 5, "one"), at_commit_after="INSERT INTO sweep_state"
    ) as first:
        second = doing(lambda: run_pass(yard, "requeue", 5, "two"))
        second.assert_waits(yard.store)
    assert first.result() is not None
    assert second.result() is None
    later(yard, 5)
    with held(yard.store, lambda: run_pass(yard, "requeue", 5, "one"), at_commit_after="UPDATE sweep_state") as first:
        second = doing(lambda: run_pass(yard, "requeue", 5, "two"))
        second.assert_waits(yard.store)
    assert first.result() is not None
    assert second.result() is None


def test_a_tick_a_little_early_is_no_second_pass_and_jitter_loses_none(yard: Yard) -> None:
    assert run_pass(yard, "requeue", 5, "one") is not None
    later(yard, 2)
    assert run_pass(yard, "requeue", 5, "one") is None
    later(yard, 2.5)
    assert run_pass(yard, "requeue", 5, "one") is not None


def test_a_sweep_is_overdue_after_three_periods(yard: Yard) -> None:
    hourly = dict.fromkeys(SWEEPS, 3600.0)  # whatever this machine takes for the steps between is nothing to it
    assert overdue(yard, hourly) == list(hourly)
    for name in hourly:
        run_pass(yard, name, 5, "one")
    assert overdue(yard, hourly) == []
    later(yard, 2.9 * 3600, listening=False)
    assert overdue(yard, hourly) == []
    later(yard, 0.2 * 3600, listening=False)
    assert overdue(yard, hourly) == list(hourly)


def test_a_clock_that_is_set_back_stops_no_sweep(yard: Yard) -> None:
    """The database's machine came up with a wrong clock, and was told the right time later."""
    assert run_pass(yard, "requeue", 5, "one") is not None
    later(yard, -3600)
    assert "requeue" in overdue(yard, PERIODS)
    assert run_pass(yard, "requeue", 5, "one") is not None
    assert run_pass(yard, "requeue", 5, "two") is None
    assert "requeue" not in overdue(yard, PERIODS)


def test_an_unknown_sweep_is_an_error_of_the_caller(yard: Yard) -> None:
    with pytest.raises(KeyError):
        run_pass(yard, "forged", 5, "one")


@pytest.mark.parametrize("name", sorted(SWEEPS))
def test_every_sweep_may_run_twice_at_once_and_finds_nothing_to_do_in_peace(yard: Yard, name: str) -> None:
    validated(yard)
    one = machine(yard)
    one.claim()
    passes = [doing(lambda: SWEEPS[name](yard, 100)) for _ in range(3)]
    for each in passes:
        assert set(each.result().values()) <= {0}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)


def test_ticks_of_one_sweep_do_not_hide_that_the_others_are_overdue(yard: Yard) -> None:
    stopping = threading.Event()
    periods = dict.fromkeys(SWEEPS, 0.2)
    sweeper = Sweeper(yard, periods=periods, runner="one", stopping=stopping)
    thread = threading.Thread(target=sweeper.run)
    thread.start()
    try:

        def ticked() -> bool:
            sweeper.tick("forged")
            sweeper.tick("requeue")
            return overdue(yard, dict.fromkeys(SWEEPS, 5.0)) == []

        wait_for(ticked)
    finally:
        stopping.set()
        sweeper.tick("")
        thread.join(20)
    assert not thread.is_alive()
