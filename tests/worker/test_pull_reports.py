"""What the control plane hears of a pull: its begin and end for sure, and seldom what is between."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed
from app.domain.pulls import Pull, PullStatus
from app.worker.pull_reports import EVERY_SECONDS, SLOW_SECONDS, PullReports
from tests.fakes.control_plane import Answer, FakeControlPlane, refusal

BEGUN = Pull(1, "ollama@here", "m", total=1000)
DONE = replace(BEGUN, status=PullStatus.PULLED, completed=1000)


class Reporter:
    """Reports whose turns and time the test decides about."""

    def __init__(self, plane: FakeControlPlane) -> None:
        self.now = 0.0
        self.plane = plane
        self.dismissals: list[Dismissed] = []
        self.client = ControlPlane(plane.url, "gk-test", boot_id="boot")
        self.reports = PullReports(self.client, "wrk_1", "boot", lambda: self.now, self.dismissals.append)

    def told(self, *pulls: Pull) -> list[int]:
        """Note and take a turn; gives the bytes of all that was told so far."""
        for pull in pulls:
            self.reports.note(pull)
        self.reports.turn()
        return [call.body["completed"] for call in self.plane.called("model-progress")]


@pytest.fixture
def reporter(plane: FakeControlPlane) -> Iterator[Reporter]:
    found = Reporter(plane)
    yield found
    found.client.close()


def test_begin_and_end_are_told_at_once(reporter: Reporter, plane: FakeControlPlane) -> None:
    assert reporter.told(BEGUN) == [0]
    assert reporter.told(DONE) == [0, 1000]
    message = plane.called("model-progress")[-1].body
    assert {key: message[key] for key in ("worker_id", "boot_id", "runtime", "model", "status", "total")} == {
        "worker_id": "wrk_1",
        "boot_id": "boot",
        "runtime": "ollama@here",
        "model": "m",
        "status": "pulled",
        "total": 1000,
    }
    assert reporter.told() == [0, 1000]  # once


def test_between_them_at_most_once_a_second_and_only_what_is_a_hundredth(reporter: Reporter) -> None:
    reporter.told(BEGUN)
    assert reporter.told(replace(BEGUN, completed=500)) == [0]
    reporter.now += EVERY_SECONDS
    assert reporter.told(replace(BEGUN, completed=9)) == [0]
    assert reporter.told(replace(BEGUN, completed=10)) == [0, 10]
    reporter.now += SLOW_SECONDS
    assert reporter.told() == [0, 10]  # nothing has come
    assert reporter.told(replace(BEGUN, completed=11)) == [0, 10, 11]


def test_an_end_that_nobody_took_is_told_again(reporter: Reporter, plane: FakeControlPlane) -> None:
    plane.next("model-progress", None, Answer(503))
    reporter.told(BEGUN)
    assert reporter.told(DONE) == [0, 1000]
    assert reporter.told() == [0, 1000, 1000]
    assert reporter.told() == [0, 1000, 1000]


def test_a_refusal_is_not_asked_for_twice(reporter: Reporter, plane: FakeControlPlane) -> None:
    plane.next("model-progress", refusal(404))
    assert reporter.told(DONE) == [1000]
    assert reporter.told() == [1000]


def test_a_superseded_worker_is_told_so(reporter: Reporter, plane: FakeControlPlane) -> None:
    plane.next("model-progress", refusal(409, "superseded"))
    reporter.told(BEGUN)
    assert len(reporter.dismissals) == 1
