"""The heartbeat: what is sent, when again, and what each answer does."""

from collections.abc import Iterator

import pytest

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed, Superseded
from app.schemas.workers import Heartbeat as Beat
from app.schemas.workers import HeartbeatAnswer
from app.worker.heartbeat import Heartbeat
from app.worker.held import HeldLeases, Listing
from tests.fakes.control_plane import Answer, FakeControlPlane, Lease, Lose, refusal


class Job:
    lease_id, is_spooled = 1, False

    def list_unstarted(self) -> bool:
        return False

    def stop(self, _reason: str) -> None: ...

    def drop(self, _reason: str) -> None: ...


class Yard:
    """A heartbeat that is turned by hand, on a clock that the test moves."""

    def __init__(self, plane: FakeControlPlane) -> None:
        self.now = 1000.0
        self.held = HeldLeases(lambda: self.now, 280.0)
        self.held.add(Job(), self.now)
        self.answers: list[HeartbeatAnswer] = []
        self.dismissals: list[Dismissed] = []
        self.client = ControlPlane(plane.url, "gk-test", boot_id="boot_1")
        self.loop = Heartbeat(
            self.client,
            "wrk_1",
            self.held,
            renew_seconds=10.0,
            clock=lambda: self.now,
            describe=self.describe,
            on_answer=self.answers.append,
            on_dismissed=self.dismissals.append,
        )

    def describe(self, listing: Listing) -> Beat:
        self.now += 3.0  # whatever happens after the beat began is no part of what it renews
        return Beat(boot_id="boot_1", leases=listing.leases)

    def overdue_at(self, now: float) -> list[int]:
        self.now = now
        return self.held.stop_overdue()


@pytest.fixture
def yard(plane: FakeControlPlane) -> Iterator[Yard]:
    plane.leases[1] = Lease({})
    found = Yard(plane)
    yield found
    found.client.close()


def test_an_answered_beat_renews_from_when_it_was_sent(yard: Yard) -> None:
    yard.now = 1200.0
    yard.loop.turn()
    assert yard.overdue_at(1200.0 + 279) == []
    assert yard.overdue_at(1200.0 + 280) == [1]


@pytest.mark.parametrize("trouble", [Lose(), Answer(503), Answer(500, "text"), Answer(200, {"leases": "?"})])
def test_a_beat_without_a_good_answer_renews_nothing(yard: Yard, plane: FakeControlPlane, trouble: object) -> None:
    plane.next("heartbeat", trouble)
    yard.now = 1200.0
    yard.loop.turn()
    assert yard.answers == []
    assert yard.overdue_at(1281.0) == [1]


def test_after_an_answer_the_next_beat_comes_within_a_fifth_of_the_interval(yard: Yard) -> None:
    waits = {yard.loop.turn() for _ in range(30)}
    assert 8 <= min(waits) < max(waits) <= 12
    assert len(waits) > 20


def test_an_unanswered_beat_is_followed_soon(yard: Yard, plane: FakeControlPlane) -> None:
    plane.next("heartbeat", Answer(503))
    assert yard.loop.turn() <= 2


@pytest.mark.parametrize("status", [401, 403, 412, 426])
def test_a_dismissal_ends_the_beats(yard: Yard, plane: FakeControlPlane, status: int) -> None:
    plane.next("heartbeat", refusal(status))
    yard.loop.turn()
    assert [error.status for error in yard.dismissals] == [status]


def test_being_superseded_is_a_dismissal(yard: Yard, plane: FakeControlPlane) -> None:
    plane.next("heartbeat", refusal(409, "superseded"))
    yard.loop.turn()
    assert [type(error) for error in yard.dismissals] == [Superseded]
