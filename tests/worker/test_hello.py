"""Hello: the spool first, ten tries, and a name that is free (A-15, R-09, PROTOCOL 3)."""

import socket
import threading
from collections.abc import Iterator
from itertools import islice, repeat
from pathlib import Path

import pytest

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed, NameTaken, TryLater
from app.domain.workers import Transport
from app.schemas.workers import Hello
from app.worker.backoff import backoff
from app.worker.hello import TRIES, say_hello
from app.worker.introduction import Identity, introduce, names
from app.worker.spool import Spool, SpoolKind
from tests.fakes.control_plane import Answer, FakeControlPlane, Lose, refusal

WHO = Identity("gpu-1", "gpu", Transport.CELERY, 1, None)


def hello(name: str = "gpu-1") -> Hello:
    return Hello(name=name, install_id="i", boot_id="b", pool="gpu", transport=Transport.CELERY)


@pytest.fixture
def client(plane: FakeControlPlane) -> Iterator[ControlPlane]:
    found = ControlPlane(plane.url, "gk-test", boot_id="boot_1")
    yield found
    found.close()


def say(client: ControlPlane, spool: Spool, name: str = "gpu-1") -> str:
    return say_hello(client, spool, lambda: hello(name), repeat(0.0), threading.Event()).worker_id


def test_it_is_tried_ten_times(client: ControlPlane, plane: FakeControlPlane, tmp_path: Path) -> None:
    plane.next("register", *[Answer(503)] * (TRIES - 1))
    assert say(client, Spool(tmp_path)) == "wrk_1"
    plane.next("register", *[Lose()] * TRIES)
    with pytest.raises(TryLater):
        say(client, Spool(tmp_path))
    assert len(plane.called("register")) == 2 * TRIES


def test_a_refusal_is_not_tried_again(client: ControlPlane, plane: FakeControlPlane, tmp_path: Path) -> None:
    """A-13, PH-08."""
    plane.next("register", refusal(426))
    with pytest.raises(Dismissed):
        say(client, Spool(tmp_path))
    assert len(plane.called("register")) == 1


def test_the_spool_goes_first(client: ControlPlane, plane: FakeControlPlane, tmp_path: Path) -> None:
    Spool(tmp_path).write(SpoolKind.HAND_IN, b'{"worker_id":"wrk_1","batch_id":"b"}\n')
    plane.next("results", Answer(503))
    say(client, Spool(tmp_path))
    assert [call.route for call in plane.calls] == ["results", "results", "register"]


def test_what_the_api_breaks_on_keeps_no_worker_away_for_good(
    client: ControlPlane, plane: FakeControlPlane, tmp_path: Path
) -> None:
    """A process that ends for it would find it again after each of its starts."""
    Spool(tmp_path).write(SpoolKind.HAND_IN, b'{"worker_id":"wrk_1","batch_id":"b"}\n')
    plane.next("results", *[Answer(500)] * TRIES)
    assert say(client, Spool(tmp_path)) == "wrk_1"
    assert [call.route for call in plane.calls] == ["results"] * TRIES + ["register"]
    assert Spool(tmp_path).has_orphans, "it may still be taken, when that is mended"


def test_a_service_that_is_away_is_not_passed_over(
    client: ControlPlane, plane: FakeControlPlane, tmp_path: Path
) -> None:
    Spool(tmp_path).write(SpoolKind.HAND_IN, b'{"worker_id":"wrk_1","batch_id":"b"}\n')
    plane.next("results", *[Answer(503)] * TRIES)
    with pytest.raises(TryLater):
        say(client, Spool(tmp_path))
    assert not plane.called("register")


def test_the_waits_double_and_chance_adds_up_to_five_seconds() -> None:
    assert list(islice(backoff(1, 30, lambda: 0.0), 7)) == [1, 2, 4, 8, 16, 30, 30]
    assert list(islice(backoff(1, 30, lambda: 1.0), 7)) == [2, 4, 8, 13, 21, 35, 35]


class TestTheName:
    def test_that_is_given_is_the_only_one_tried(self, tmp_path: Path) -> None:
        assert list(names("mine", "auto", tmp_path)) == ["mine"]

    def test_is_else_the_machines_with_the_first_free_number(
        self, client: ControlPlane, plane: FakeControlPlane, tmp_path: Path
    ) -> None:
        plane.next("register", refusal(409, "name_taken"), refusal(409, "name_taken"))
        spool = Spool(tmp_path)

        def under(who: Identity) -> object:
            return say_hello(client, spool, lambda: hello(who.name), repeat(0.0), threading.Event())

        welcome = introduce(WHO, names(None, "box 7", tmp_path), under, tmp_path)  # type: ignore[arg-type]
        assert welcome.name == "box-7-3"
        assert list(names(None, "box 7", tmp_path)) == ["box-7-3"]

    @pytest.mark.parametrize("machine_id", ["auto", "", " "])
    def test_a_machine_without_a_name_of_its_own_has_its_host_name(self, tmp_path: Path, machine_id: str) -> None:
        """C-06."""
        assert next(names(None, machine_id, tmp_path)) == f"{socket.gethostname()}-1"

    @pytest.mark.parametrize("left", [b"", b"\xff\xfe\x00", b"no name", b"x" * 5000])
    def test_that_a_broken_disk_left_is_no_name(self, tmp_path: Path, left: bytes) -> None:
        (tmp_path / "name").write_bytes(left)
        assert next(names(None, "box", tmp_path)) == "box-1"

    def test_that_is_taken_ends_the_worker(self, tmp_path: Path) -> None:
        def under(_who: Identity) -> object:
            raise NameTaken("somebody lives here")

        with pytest.raises(NameTaken):
            introduce(WHO, names("mine", "auto", tmp_path), under, tmp_path)  # type: ignore[arg-type]
