"""While the control plane is away each call waits longer and longer; the first one that is answered ends all waits."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from app.client import patience
from app.client.downloads import download
from app.client.errors import TryLater
from app.client.http import Http
from app.client.patience import Patience
from app.client.reachability import Reachability
from tests.e2e.yard import until
from tests.fakes.control_plane import Answer, Cut, FakeControlPlane, Lose, rows

LONG_SECONDS = 60.0
"""Nobody sleeps so long here: what comes sooner was called."""
Call = Callable[[], object]


@pytest.fixture(autouse=True)
def _long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_SECONDS", LONG_SECONDS)


class Watched(Reachability):
    """Counts the waits between two tries as they begin: by then the call knows that its last try failed."""

    waits = 0

    def wait(self, seconds: float, *, returns: int | None) -> None:
        self.waits += 1
        super().wait(seconds, returns=returns)


@pytest.fixture
def reachability() -> Watched:
    return Watched("http://server")


@pytest.fixture
def http(plane: FakeControlPlane, reachability: Watched) -> Iterator[Http]:
    with Http(plane.url, "gk-test") as found:
        found.reachability = reachability
        yield found


@pytest.fixture
def at_once(http: Http) -> Iterator[Callable[..., None]]:
    """Make calls in threads of their own, which end with the test."""
    threads: list[threading.Thread] = []

    def start(*calls: Call) -> None:
        threads.extend(threading.Thread(target=call) for call in calls)
        for thread in threads[-len(calls) :]:
            thread.start()

    yield start
    http.close()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def post(http: Http, route: str) -> Call:
    def call() -> None:
        with suppress(TryLater):
            http.call("POST", f"/workers/{route}", content=b"{}", deadline_seconds=10 * LONG_SECONDS)

    return call


def test_one_call_that_is_answered_again_has_all_waiting_ones_go_on_at_once(
    plane: FakeControlPlane, http: Http, reachability: Watched, at_once: Callable[..., None]
) -> None:
    plane.next("progress", Lose())
    plane.next("model-progress", Answer(502))
    at_once(post(http, "progress"), post(http, "model-progress"))
    plane.never(lambda: len(plane.calls) > 2, 0.3, after=lambda: reachability.waits == 2)
    http.call("POST", "/workers/bye", content=b"{}")
    plane.wait(lambda: len(plane.called("progress")) == len(plane.called("model-progress")) == 2)


def test_a_download_goes_on_with_them(
    plane: FakeControlPlane, http: Http, reachability: Watched, at_once: Callable[..., None]
) -> None:
    plane.give_batch(list(rows(4)))
    plane.next("content", Cut(10))
    found: list[bytes] = []

    def fetch() -> None:
        found.append(download(http, "/v1/files/file-1/content", 0, 100, headers={}, deadline_seconds=10 * LONG_SECONDS))

    at_once(fetch)
    plane.never(lambda: len(plane.called("content")) > 1, 0.3, after=lambda: reachability.waits == 1)
    http.call("POST", "/workers/bye", content=b"{}")
    until(lambda: found, "it has all of it")
    assert len(plane.called("content")) == 2


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Answer(503, headers={"retry-after": "60"}), id="the server asked for it"),
        pytest.param(Answer(500), id="it is this one call that fails"),
    ],
)
def test_a_wait_for_another_reason_is_sat_out_whoever_is_answered(
    plane: FakeControlPlane, http: Http, reachability: Watched, at_once: Callable[..., None], failure: Answer
) -> None:
    plane.next("progress", failure)
    at_once(post(http, "progress"))
    until(lambda: reachability.waits, "the failure was read")
    http.call("POST", "/workers/bye", content=b"{}")
    plane.never(lambda: len(plane.called("progress")) > 1, 0.5, after=lambda: reachability.returns == 1)


def test_what_was_answered_while_a_try_still_ran_into_its_end_counts() -> None:
    """Else a call whose connection died a moment after the return would sit its wait out alone."""
    reachability = Reachability("http://server")
    one = Patience(reachability, 10 * LONG_SECONDS)
    reachability.failed("refused")
    reachability.answered()
    began = time.monotonic()
    assert one.waits(TryLater("the connection was cut"))
    assert time.monotonic() - began < LONG_SECONDS / 2


def test_a_return_is_counted_once() -> None:
    """Calls that are answered all along hurry nobody whose own way is broken."""
    reachability = Reachability("http://server")
    reachability.answered()
    reachability.failed("refused")
    for _ in range(3):
        reachability.answered()
    assert reachability.returns == 1
