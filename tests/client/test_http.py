"""Calls are tried again with the same body until a deadline, and silence is said once a minute."""

import threading
import time
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from app.client.downloads import download
from app.client.errors import Dismissed, Refused, TryLater
from app.client.http import Http
from app.client.reachability import Reachability
from tests.fakes.control_plane import Answer, FakeControlPlane, Lose, refusal, rows


@pytest.fixture
def http(plane: FakeControlPlane) -> Iterator[Http]:
    with Http(plane.url, "gk-test") as found:
        yield found


def test_the_same_bytes_are_sent_until_somebody_answers(plane: FakeControlPlane, http: Http) -> None:
    plane.next("bye", Lose(), Answer(503), Answer(429))
    http.call("POST", "/workers/w/bye", content=b'{"a":1}', deadline_seconds=10)
    assert [call.raw for call in plane.called("bye")] == [b'{"a":1}'] * 4


def test_an_answer_that_cannot_be_read_is_none(plane: FakeControlPlane, http: Http) -> None:
    plane.next("bye", Answer(200, {"a": 1}, headers={"content-encoding": "gzip"}))
    http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=10)
    assert len(plane.called("bye")) == 2


def test_a_redirect_is_no_answer_and_none_of_its_page_is_taken_for_a_file(plane: FakeControlPlane, http: Http) -> None:
    """A proxy may send callers to a page of its own for a while; what they ask for is theirs afterwards."""
    elsewhere = Answer(302, {"please": "log in" * 20}, headers={"location": "https://login.example.org/"})
    plane.give_batch(list(rows(4)))
    plane.next("bye", elsewhere)
    plane.next("content", elsewhere)
    http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=10)
    found = download(http, "/v1/files/file-1/content", 0, 100, headers={}, deadline_seconds=10)
    assert found == plane.input[:100]
    assert len(plane.called("bye")) == len(plane.called("content")) == 2


def test_without_a_deadline_there_is_one_try(plane: FakeControlPlane, http: Http) -> None:
    plane.next("bye", Answer(500))
    with pytest.raises(TryLater):
        http.call("POST", "/workers/w/bye", content=b"{}")
    assert len(plane.called("bye")) == 1


def test_no_try_begins_after_the_deadline(plane: FakeControlPlane, http: Http) -> None:
    plane.next("bye", *[Answer(500)] * 50)
    began = time.monotonic()
    with pytest.raises(TryLater):
        http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=0.7)
    assert time.monotonic() - began < 8
    assert 1 <= len(plane.called("bye")) <= 3  # at 0, 0.2 and 0.6 s, where the machine does not stall


def test_retry_after_is_waited_for(plane: FakeControlPlane, http: Http) -> None:
    plane.next("bye", Answer(503, headers={"retry-after": "1"}))
    began = time.monotonic()
    http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=5)
    assert time.monotonic() - began >= 1


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(plane: FakeControlPlane, http: Http) -> None:
    plane.next("bye", Answer(503, headers={"retry-after": "3600"}))
    with pytest.raises(TryLater):
        http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=5)


@pytest.mark.parametrize(("status", "error"), [(400, Refused), (401, Dismissed), (409, Refused)])
def test_an_answer_that_is_a_no_is_not_tried_again(
    plane: FakeControlPlane, http: Http, status: int, error: type[Exception]
) -> None:
    plane.next("bye", refusal(status))
    with pytest.raises(error):
        http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=10)
    assert len(plane.called("bye")) == 1


def test_closing_ends_a_wait_between_two_tries(plane: FakeControlPlane) -> None:
    http = Http(plane.url, "gk-test")
    plane.next("bye", *[Answer(503, headers={"retry-after": "60"})] * 2)
    raised: list[BaseException] = []

    def call() -> None:
        try:
            http.call("POST", "/workers/w/bye", content=b"{}", deadline_seconds=300)
        except TryLater as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    plane.wait(lambda: plane.called("bye"))
    http.close()
    thread.join(5)
    assert len(raised) == 1


def test_the_key_goes_with_every_call(plane: FakeControlPlane, http: Http) -> None:
    http.call("POST", "/workers/w/bye", content=b"{}")
    assert plane.called("bye")[0].headers["authorization"] == "Bearer gk-test"


class TestSilence:
    def test_is_logged_at_the_first_failure_and_then_once_a_minute(self) -> None:
        """FT-07."""
        now = [0.0]
        reachability = Reachability("http://server", lambda: now[0])
        with capture_logs() as logs:
            for second in range(150):
                now[0] = float(second)
                reachability.failed("refused")
        said = [(entry["event"], entry["for_seconds"]) for entry in logs]
        assert said == [("worker.unreachable", 0), ("worker.unreachable", 60), ("worker.unreachable", 120)]

    def test_that_comes_and_goes_is_logged_once_a_minute_too(self) -> None:
        """A server under load is slow for one call and not for the next; nobody reads a line for each."""
        now = [0.0]
        reachability = Reachability("http://server", lambda: now[0])
        with capture_logs() as logs:
            for second in range(100):
                now[0] = float(second)
                reachability.answered() if second % 2 else reachability.failed("slow")
        said = [(entry["event"], entry.get("first")) for entry in logs]
        assert said == [("worker.unreachable", True), ("worker.reachable", None)] * 2

    def test_ends_with_one_line(self) -> None:
        reachability = Reachability("http://server", lambda: 0.0)
        reachability.failed("refused")
        with capture_logs() as logs:
            reachability.answered()
            reachability.answered()
        assert [entry["event"] for entry in logs] == ["worker.reachable"]
