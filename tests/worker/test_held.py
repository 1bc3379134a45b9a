"""When a worker gives a lease up by itself: the ladder's last rung but one, to the second (LS-05, PROTOCOL 2)."""

from dataclasses import dataclass, field

import pytest

from app.domain.leases import LeaseVerdict
from app.domain.timing import Timing
from app.worker.held import HeldLeases

RENEWED, STOP, STALE = LeaseVerdict.RENEWED, LeaseVerdict.STOP, LeaseVerdict.STALE


@dataclass
class Job:
    lease_id: int
    is_started: bool = True
    is_spooled: bool = False
    told: list[str] = field(default_factory=list)

    def list_unstarted(self) -> bool:
        return not self.is_started

    def stop(self, _reason: str) -> None:
        self.told.append("stop")

    def drop(self, _reason: str) -> None:
        self.told.append("drop")


class Yard:
    def __init__(self) -> None:
        self.now = 1000.0
        self.held = HeldLeases(lambda: self.now, Timing().self_stop_seconds)
        self.job = Job(7)
        self.held.add(self.job, self.now)

    def after(self, seconds: float) -> list[int]:
        self.now = 1000.0 + seconds
        return self.held.stop_overdue()


@pytest.fixture
def yard() -> Yard:
    return Yard()


def test_a_silent_worker_holds_its_lease_for_280_seconds_and_no_longer(yard: Yard) -> None:
    assert yard.after(279) == []
    assert yard.job.told == []
    assert yard.after(281) == [7]
    assert yard.job.told == ["stop"]


def test_the_clock_counts_from_when_the_beat_was_sent_not_from_its_answer(yard: Yard) -> None:
    yard.now = 1200.0  # the answer to a beat sent at 1010 took 190 s
    yard.held.apply({7: RENEWED}, sent_at=1010.0)
    assert yard.after(10 + 279) == []
    assert yard.after(10 + 281) == [7]


def test_an_older_answer_that_comes_late_takes_nothing_back(yard: Yard) -> None:
    yard.held.apply({7: RENEWED}, sent_at=1050.0)
    yard.held.apply({7: RENEWED}, sent_at=1010.0)
    assert yard.after(50 + 279) == []


def test_an_answer_that_does_not_name_the_lease_moves_nothing(yard: Yard) -> None:
    yard.held.apply({}, sent_at=1200.0)
    assert yard.after(281) == [7]


def test_stop_moves_no_clock_and_tells_the_job(yard: Yard) -> None:
    yard.held.apply({7: STOP}, sent_at=1200.0)
    assert yard.job.told == ["stop"]
    assert yard.after(281) == [7]


def test_stale_drops_the_job_at_once(yard: Yard) -> None:
    yard.held.apply({7: STALE}, sent_at=1001.0)
    assert yard.job.told == ["drop"]
    assert len(yard.held) == 0


def test_a_lease_that_nothing_was_heard_of_is_stopped_once_and_listed_until_its_end_is_acknowledged(yard: Yard) -> None:
    """The control plane may have been away itself: then it takes what was finished."""
    yard.after(281)
    assert yard.held.listing().leases == [7]
    yard.held.apply({7: RENEWED}, sent_at=yard.now)
    assert yard.after(2 * 281) == []
    assert yard.job.told == ["stop"]
    yard.held.remove(7)
    assert yard.held.listing().leases == []


def test_a_lease_whose_end_is_on_the_way_waits_for_that_answer(yard: Yard) -> None:
    yard.job.is_spooled = True
    yard.held.apply({7: STALE}, sent_at=1001.0)
    assert yard.job.told == []
    assert yard.held.listing().leases == [7]


def test_a_beat_lists_what_began_what_did_not_and_what_is_spooled(yard: Yard) -> None:
    yard.held.add(Job(8, is_started=False), yard.now)
    yard.held.add(Job(9, is_spooled=True), yard.now)
    listing = yard.held.listing()
    assert (listing.leases, listing.unstarted, listing.spooled) == ([7, 8, 9], [8], [9])


def test_verdicts_about_unknown_leases_do_nothing(yard: Yard) -> None:
    yard.held.apply({1: STOP, 2: STALE, 3: RENEWED}, sent_at=1001.0)
    yard.held.stop([1, 2, 3])
    assert yard.held.listing().leases == [7]


def test_a_lease_whose_claim_was_out_when_a_stop_was_heard_is_asked_about(yard: Yard) -> None:
    asked: list[float] = []
    yard.held.on_doubt = lambda: asked.append(yard.now)
    yard.held.add(Job(8), 1000.0)
    assert asked == [], "no stop was heard"
    yard.now = 1005.0
    yard.held.stop_heard()
    yard.held.add(Job(9), 1006.0)
    assert asked == [], "its claim was answered after the stop"
    yard.held.add(Job(10), 1004.0)
    assert asked == [1005.0]
