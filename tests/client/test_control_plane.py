"""The worker's routes: what is sent again, what never is, and what goes with every call."""

import threading
import time

import pytest

from app.client.control_plane import BOOT_ID_HEADER, ControlPlane
from app.client.errors import Refused, TryLater
from app.domain.workers import ByeReason
from app.schemas.claims import ClaimRequest
from app.schemas.workers import Bye, Heartbeat
from tests.fakes.control_plane import Answer, Cut, FakeControlPlane, Hang, Lose, rows

CLAIM = ClaimRequest(worker_id="wrk_1", boot_id="boot_1", request_id="r1", want_rows=4)


def test_a_claim_whose_answer_was_lost_is_asked_again_under_its_request_id(
    plane: FakeControlPlane, client: ControlPlane
) -> None:
    plane.give_batch(list(rows(8)))
    plane.next("claim", Lose())
    answer = client.claim(CLAIM)
    assert [grant.lease_id for grant in answer.grants] == [1]
    assert len(plane.leases) == 1
    assert [call.body["request_id"] for call in plane.called("claim")] == ["r1", "r1"]


def test_a_heartbeat_is_never_sent_again_by_itself(plane: FakeControlPlane, client: ControlPlane) -> None:
    plane.next("heartbeat", Answer(503))
    with pytest.raises(TryLater):
        client.heartbeat("wrk_1", Heartbeat(boot_id="boot_1"), timeout_seconds=1)
    assert len(plane.called("heartbeat")) == 1


def test_a_heartbeat_that_nobody_answers_ends_in_its_time(plane: FakeControlPlane, client: ControlPlane) -> None:
    frozen = threading.Event()
    plane.next("heartbeat", Hang(frozen))
    began = time.monotonic()
    with pytest.raises(TryLater):
        client.heartbeat("wrk_1", Heartbeat(boot_id="boot_1"), timeout_seconds=0.2)
    frozen.set()
    assert time.monotonic() - began < 8


def test_bye_is_one_try_of_two_seconds(plane: FakeControlPlane, client: ControlPlane) -> None:
    frozen = threading.Event()
    plane.next("bye", Hang(frozen))
    began = time.monotonic()
    with pytest.raises(TryLater):
        client.bye("wrk_1", Bye(boot_id="boot_1", reason=ByeReason.SIGNAL))
    frozen.set()
    assert 1.5 < time.monotonic() - began < 8
    assert len(plane.called("bye")) == 1


def test_every_call_carries_the_boot_id_except_what_an_earlier_process_left(
    plane: FakeControlPlane, client: ControlPlane
) -> None:
    plane.give_batch(list(rows(4)))
    client.claim(CLAIM)
    client.download("/v1/files/file-1/content", 0, 10)
    client.hand_in(b'{"worker_id":"wrk_1","batch_id":"batch_1"}\n', ends=False)
    client.hand_in(b'{"worker_id":"wrk_1","batch_id":"batch_1"}\n', ends=True, as_boot=False)
    assert [call.headers.get(BOOT_ID_HEADER) for call in plane.calls] == ["boot_1", "boot_1", "boot_1", None]


def test_an_answer_of_another_shape_is_refused_and_not_tried_again(
    plane: FakeControlPlane, client: ControlPlane
) -> None:
    plane.next("claim", Answer(200, {"grants": "many"}))
    with pytest.raises(Refused):
        client.claim(CLAIM)


class TestDownload:
    def test_gives_the_range_up_to_its_end(self, plane: FakeControlPlane, client: ControlPlane) -> None:
        plane.input = bytes(range(200))
        assert client.download("/v1/files/f/content", 10, 20) == bytes(range(10, 20))

    def test_goes_on_where_the_connection_broke(self, plane: FakeControlPlane, client: ControlPlane) -> None:
        plane.input = bytes(range(200))
        plane.next("content", Cut(30), Cut(20))
        assert client.download("/v1/files/f/content", 50, 150) == bytes(range(50, 150))
        asked = [call.headers["range"] for call in plane.called("content")]
        assert asked == ["bytes=50-149", "bytes=80-149", "bytes=100-149"]

    def test_of_a_file_that_is_shorter_is_refused(self, plane: FakeControlPlane, client: ControlPlane) -> None:
        plane.input = b"short"
        with pytest.raises(Refused, match="ends at byte 5"):
            client.download("/v1/files/f/content", 0, 10)

    def test_is_given_up_when_no_new_byte_comes(self, plane: FakeControlPlane, client: ControlPlane) -> None:
        plane.next("content", *[Answer(503)] * 20)
        with pytest.raises(TryLater):
            client.download("/v1/files/f/content", 0, 10, deadline_seconds=0.5)
