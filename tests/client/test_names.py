"""A name server that does not answer costs a call no more than a host that does not."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from app.client.errors import TryLater
from app.client.http import Http
from tests.fakes.control_plane import FakeControlPlane

SECONDS = 0.3


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A name server that answers nobody; gives the names it was asked for."""
    asked: list[str] = []
    over = threading.Event()
    real = socket.getaddrinfo

    def hang(host: str, *args: object, **options: object) -> object:
        if host != "control.example":
            return real(host, *args, **options)  # type: ignore[arg-type]
        asked.append(host)
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield asked
    over.set()


def test_a_look_up_that_hangs_is_given_up_in_the_time_of_a_connection(silent: list[str]) -> None:
    with Http("http://control.example:80", "gk-test") as http:
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(TryLater, match=r"looking up control\.example took more than"):
                http.call("POST", "/workers/w/bye", content=b"{}", timeout_seconds=SECONDS)
        assert time.monotonic() - began < 20
    assert silent == ["control.example"], "one thread waits for it, and not one a call"


def test_a_name_that_nobody_knows_is_no_answer() -> None:
    with Http("http://nobody.invalid:80", "gk-test") as http, pytest.raises(TryLater, match=r"nobody\.invalid"):
        http.call("GET", "/healthz", timeout_seconds=5)


def test_a_name_with_several_addresses_is_tried_to_its_last(
    plane: FakeControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`localhost` is often ::1 first, where nobody listens."""
    port = int(plane.url.rpartition(":")[2])
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))]
    found += [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]  # type: ignore[list-item]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **more: found if host == "two" else real(host, *args, **more)
    )
    with Http(f"http://two:{port}", "gk-test") as http:
        http.call("POST", "/workers/w/bye", content=b"{}", timeout_seconds=5)
    assert plane.called("bye")
