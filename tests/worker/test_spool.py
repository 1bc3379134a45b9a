"""What must reach the control plane is on disk before it is sent, and is sent by whoever comes next (DR-11)."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.client.control_plane import BOOT_ID_HEADER, ControlPlane
from app.client.errors import Dismissed, TryLater
from app.schemas.claims import FailureReport
from app.schemas.segments import End, HandInHeader, Part
from app.schemas.wire import UsageCounts
from app.worker.spool import MOST_BROKEN, Spool, SpoolKind
from app.worker.spool_sender import RETRY_SECONDS, SpoolSender
from tests.fakes.control_plane import Answer, FakeControlPlane, Lease, Lose, refusal


def hand_in(*ends: int) -> bytes:
    header = HandInHeader(
        worker_id="wrk_1", batch_id="batch_1", ends=[End(lease_id=end, request_id=f"e{end}") for end in ends]
    )
    return header.model_dump_json().encode() + b"\n"


@pytest.fixture
def client(plane: FakeControlPlane) -> Iterator[ControlPlane]:
    plane.leases = {
        number: Lease({"first_row": 0, "rows": 0, "number": 0, "start": 0, "end": 0}) for number in (1, 2, 3)
    }
    found = ControlPlane(plane.url, "gk-test", boot_id="boot_new")
    yield found
    found.close()


def test_a_new_process_sends_what_the_old_one_left_oldest_first_without_a_boot_id(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane
) -> None:
    """FT-06."""
    old = Spool(tmp_path)
    bodies = [hand_in(1), hand_in(2), hand_in()]
    for body in bodies:
        old.write(SpoolKind.HAND_IN, body)
    Spool(tmp_path).send_orphans(client, deadline_seconds=1)
    assert [call.raw for call in plane.called("results")] == bodies
    assert {call.headers.get(BOOT_ID_HEADER) for call in plane.calls} == {None}
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_answers_stays(tmp_path: Path, plane: FakeControlPlane, client: ControlPlane) -> None:
    Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(1))
    spool = Spool(tmp_path)
    plane.next("results", Lose())
    with pytest.raises(TryLater):
        spool.send_orphans(client, deadline_seconds=0)
    assert spool.has_orphans
    spool.send_orphans(client, deadline_seconds=0)
    assert not spool.has_orphans


def test_a_dismissal_keeps_the_spool(tmp_path: Path, plane: FakeControlPlane, client: ControlPlane) -> None:
    Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(1))
    plane.next("results", refusal(401))
    with pytest.raises(Dismissed):
        Spool(tmp_path).send_orphans(client, deadline_seconds=0)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_dismissal_is_the_heartbeats_to_find_and_no_fault_of_the_sender(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane
) -> None:
    Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(1))
    spool = Spool(tmp_path)
    plane.next("results", refusal(401))
    assert SpoolSender(spool, client).turn() == RETRY_SECONDS
    assert spool.has_orphans


@pytest.mark.parametrize(
    "no", [Answer(400), refusal(403, "not_assigned"), refusal(409, "stale"), refusal(404, "no_worker")]
)
def test_what_is_refused_for_good_is_not_sent_for_ever(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane, no: Answer
) -> None:
    for lease in (1, 2):
        Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(lease))
    plane.next("results", no)
    Spool(tmp_path).send_orphans(client, deadline_seconds=0)
    assert plane.states()[2] == "reported"
    assert list(tmp_path.iterdir()) == []


def test_what_the_api_breaks_on_lets_the_others_go_first_and_is_kept_for_a_day(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane
) -> None:
    for lease in (1, 2):
        Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(lease))
    plane.refuses = lambda call: Answer(500) if b'"lease_id":1' in call.raw else None
    spool = Spool(tmp_path)
    with pytest.raises(TryLater):
        spool.send_orphans(client, deadline_seconds=0)
    assert plane.states()[2] == "reported"
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    spool.send_orphans(client, deadline_seconds=0)
    assert not spool.has_orphans
    assert list(tmp_path.iterdir()) == []


def test_an_api_that_breaks_on_all_of_them_is_asked_a_few_times_and_about_others_the_next_time(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane
) -> None:
    """An hour without an answer leaves hundreds, and each is a trace in the API's log."""
    for _ in range(2 * MOST_BROKEN):
        Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(1))
    Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(2))
    plane.refuses = lambda call: Answer(500) if b'"lease_id":1' in call.raw else None
    spool = Spool(tmp_path)
    for sent in (MOST_BROKEN, 2 * MOST_BROKEN, 3 * MOST_BROKEN + 1):
        with pytest.raises(TryLater):
            spool.send_orphans(client, deadline_seconds=0)
        assert len(plane.called("results")) == sent
    assert plane.states()[2] == "reported"
    assert spool.count() == 2 * MOST_BROKEN


def test_a_torn_write_of_a_dead_process_is_no_report(tmp_path: Path) -> None:
    (tmp_path / ".000-000.handin.tmp").write_bytes(b'{"worker_')
    assert not Spool(tmp_path).has_orphans
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [".nfs0000000000a1", ".DS_Store", "notes.txt", ".000-001.handin.tmp"])
def test_what_a_file_system_or_a_person_puts_there_is_none_of_ours(tmp_path: Path, name: str) -> None:
    spool = Spool(tmp_path)
    item = spool.write(SpoolKind.HAND_IN, hand_in(1))
    (tmp_path / name).write_bytes(b"{}")
    assert (spool.count(), spool.leases()) == (1, [1])
    spool.remove(item)
    assert not Spool(tmp_path).has_orphans


def test_a_file_that_makes_no_sense_does_not_stop_the_others(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane
) -> None:
    (tmp_path / "000-000.handin").write_bytes(b"\x00 garbage")
    (tmp_path / "000-001.handin").mkdir()  # nobody can read it, root neither
    Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(2))
    spool = Spool(tmp_path)
    assert spool.count() == 3
    spool.send_orphans(client, deadline_seconds=0)
    assert plane.states()[2] == "reported"
    assert not spool.has_orphans


def test_a_folder_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "spool"
    folder.mkdir(parents=True)
    spool = Spool(folder)
    shutil.rmtree(folder.parent)
    with pytest.raises(FileNotFoundError):
        spool.write(SpoolKind.HAND_IN, hand_in(1))
    assert spool.error is not None
    spool.try_again()
    assert spool.error is None
    assert Spool(folder).count() == 0
    spool.write(SpoolKind.HAND_IN, hand_in(1))
    assert Spool(folder).leases() == [1]


def test_a_file_that_cannot_be_removed_keeps_no_shard_from_its_end_and_is_said(tmp_path: Path) -> None:
    """A disk that turns read-only in mid-run: what was answered is answered, and nothing more is claimed."""
    spool = Spool(tmp_path)
    item = spool.write(SpoolKind.HAND_IN, hand_in(1))
    item.path.unlink()
    item.path.mkdir()
    spool.remove(item)
    assert spool.error is not None
    spool.try_again()
    assert spool.error is None


def test_failures_are_sent_too_and_all_ends_are_named_in_bye(
    tmp_path: Path, plane: FakeControlPlane, client: ControlPlane
) -> None:
    spool = Spool(tmp_path)
    spool.write(SpoolKind.HAND_IN, hand_in(1))
    report = FailureReport(worker_id="wrk_1", lease_id=3, request_id="f", error="broken")
    spool.write(SpoolKind.FAILURE, report.model_dump_json().encode())
    assert spool.leases() == [1, 3]
    Spool(tmp_path).send_orphans(client, deadline_seconds=0)
    assert plane.states()[3] == "failed"


def test_rows_in_the_spool_keep_their_lease_beyond_the_process(tmp_path: Path) -> None:
    """Bye names it, and so does the next hello: else it ends with that, and its finished rows are refused."""
    spool = Spool(tmp_path)
    part = Part(lease_id=7, seq=1, rows="0", completed=1, failed=0, usage=UsageCounts(), length=2)
    header = HandInHeader(worker_id="wrk_1", batch_id="batch_1", parts=[part])
    spool.write(SpoolKind.HAND_IN, header.model_dump_json().encode() + b"\n{}")
    assert spool.leases() == [7]


def test_spooled_rows_are_the_owners_alone(tmp_path: Path) -> None:
    item = Spool(tmp_path).write(SpoolKind.HAND_IN, hand_in(1))
    assert stat.S_IMODE(item.path.stat().st_mode) == 0o600
