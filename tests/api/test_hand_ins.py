"""Hand-ins as the API takes them: judged by their header, in little memory, and so many at once and no more."""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from sqlmodel import select

from app.api import hand_ins
from app.blobs.local import MARKER
from app.client.control_plane import ControlPlane
from app.client.errors import TryLater
from app.db.tables import Blob, Segment
from app.domain.outputs import output_line
from app.domain.rows import Reply
from app.domain.rowsets import RowSet
from app.schemas import segments
from app.schemas.claims import ClaimRequest, ReleaseRequest
from app.schemas.handins import write_line
from app.schemas.segments import End, HandInHeader, Part
from app.services.opening import open_yard
from config.settings import ServerSettings
from tests.api_process import ApiProcess, api_process
from tests.api_target import Target, validate
from tests.databases import Databases
from tests.hands import do_control_work, hello
from tests.migrated import migrate
from tests.served import ADMIN_KEY, Served, rows, serving

MIB = 2**20
ROOM_BYTES = 40 * MIB
"""What the API process may grow by, whatever is sent to it."""


def reset_peak(api: ApiProcess) -> int:
    """Begin to measure the most memory that the API has; gives what it has now."""
    Path(f"/proc/{api.process.pid}/clear_refs").write_text("5")
    return peak(api)


def peak(api: ApiProcess) -> int:
    status = Path(f"/proc/{api.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def contents(folder: Path) -> list[Path]:
    return [path for path in (folder / "data" / "blobs").rglob("*") if path.is_file()]


def body_of(batch_id: str, numbers: Sequence[int], answer_bytes: int) -> bytes:
    reply = Reply(status=200, body=json.dumps({"a": "x" * answer_bytes}).encode(), request_id="req_1")
    return b"".join(write_line(row, reply, output_line(batch_id, row, f"row-{row}", reply)) for row in numbers)


def header_of(worker_id: str, batch_id: str, parts: Sequence[Part], ends: Sequence[int] = ()) -> bytes:
    wanted = [End(lease_id=lease_id, request_id=uuid4().hex) for lease_id in ends]
    header = HandInHeader(worker_id=worker_id, batch_id=batch_id, parts=list(parts), ends=wanted)
    return header.model_dump_json().encode() + b"\n"


def part_of(lease_id: int, numbers: Sequence[int], content: bytes, seq: int = 1) -> Part:
    span = str(RowSet.of(numbers))
    return Part(lease_id=lease_id, seq=seq, rows=span, completed=len(numbers), failed=0, length=len(content))


def send(http: httpx.Client, head: bytes, piece: bytes, times: int, *tail: bytes) -> httpx.Response:
    """Send a hand-in that this process never holds either."""

    def pieces() -> Iterator[bytes]:
        yield head
        for _ in range(times):
            yield piece
        yield from tail

    length = len(head) + len(piece) * times + sum(map(len, tail))
    return http.post("/workers/results", content=pieces(), headers={"content-length": str(length)}, timeout=120)


def test_two_hundred_mebibytes_by_a_key_without_a_worker_cost_nothing(target: Target) -> None:
    part = part_of(target.ids["lease_id"], [0], b"x" * 200 * MIB)
    head = header_of("wrk_nobody", target.ids["batch_id"], [part])
    with target.http("worker") as http:
        before = reset_peak(target.api)
        for _ in range(4):
            answer = send(http, head, b"x" * MIB, 200)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_worker")
    assert peak(target.api) - before < ROOM_BYTES
    assert not [path for path in contents(target.api.log.parent) if path.stat().st_size > MIB]


def test_a_stale_one_is_read_and_not_kept(target: Target) -> None:
    """The worker has its verdict; a lease of another's is as stale as one that has ended."""
    stale = target.ids["lease_id"] + 1_000
    head = header_of(target.ids["worker_id"], target.ids["batch_id"], [part_of(stale, [0], b"x" * 100 * MIB)])
    before_files = set(contents(target.api.log.parent))
    with target.http("worker") as http:
        before = reset_peak(target.api)
        answer = send(http, head, b"x" * MIB, 100)
    assert answer.json()["parts"] == {str(stale): "stale"}
    assert peak(target.api) - before < ROOM_BYTES
    assert set(contents(target.api.log.parent)) == before_files


@dataclass
class Sender:
    """A worker that holds all shards of a batch. `leases` are the rows of each."""

    plane: ControlPlane
    key: str
    worker_id: str
    batch_id: str
    leases: dict[int, range]

    def whole(self, lease_id: int, content: bytes, *, ends: bool = False) -> bytes:
        """A hand-in of one shard."""
        part = part_of(lease_id, self.leases[lease_id], content)
        return header_of(self.worker_id, self.batch_id, [part], [lease_id] if ends else []) + content


@contextmanager
def at_work(url: str, do_control_work: Callable[[], None], *, count: int) -> Iterator[Sender]:
    """Have a worker claim a batch of so many rows."""
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as http:
        key = http.post("/v1/tokens", json={"name": "worker", "scopes": ["worker"]}).json()["secret"]
        file = http.post("/v1/files", files={"file": ("in.jsonl", rows(count))}, data={"purpose": "batch"}).json()
        asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": file["id"]}
        http.post("/v1/batches", json=asked | {"canary_rows": 0}).raise_for_status()
    do_control_work()
    word = hello()
    plane = ControlPlane(url, key, boot_id=word.boot_id)
    worker_id = plane.register(word).worker_id
    leases: dict[int, range] = {}
    while sum(map(len, leases.values())) < count:
        claim = ClaimRequest(worker_id=worker_id, boot_id=word.boot_id, request_id=uuid4().hex, want_rows=count)
        answer = plane.claim(claim)
        assert answer.batch is not None
        leases |= {grant.lease_id: range(grant.first_row, grant.first_row + grant.rows) for grant in answer.grants}
    yield Sender(plane, key, worker_id, answer.batch.id, leases)
    plane.close()


@contextmanager
def worker(served: Served, *, count: int) -> Iterator[Sender]:
    with at_work(served.url, lambda: do_control_work(served), count=count) as sender:
        yield sender


def test_a_large_one_is_stored_in_little_memory(databases: Databases, tmp_path: Path) -> None:
    url = databases.copy_of(migrate)
    with api_process(url, tmp_path) as api:
        yard = open_yard(ServerSettings(database_url=url, data_dir=tmp_path / "data"))
        with at_work(api.url, lambda: validate(yard), count=500) as sender:
            before = reset_peak(api)
            found = []
            for lease_id, numbers in sender.leases.items():
                content = body_of(sender.batch_id, numbers, 300_000)
                answer = sender.plane.hand_in(sender.whole(lease_id, content, ends=True), ends=True)
                assert (answer.parts, answer.ends) == ({lease_id: "stored"}, {lease_id: "ended"})
                found.append((sha256(content).hexdigest(), len(content)))
            assert sum(length for _, length in found) > 140 * MIB
            assert peak(api) - before < ROOM_BYTES
        with yard.store.read() as session:
            segments = session.exec(select(Segment).order_by(Segment.id)).all()
            assert [(segment.digest, segment.length) for segment in segments] == found
            read = [yard.blobs.read(s.blob_key, s.start, s.start + s.length) for s in segments]
            assert [sha256(content).hexdigest() for content in read] == [digest for digest, _ in found]
        yard.store.close()


def test_of_a_mixed_one_only_what_may_be_stored_is_written(served: Served) -> None:
    """Parts that are stored already, of a lease that has ended, and of one that lives: in one call, in pieces."""
    with worker(served, count=600) as sender:
        first, second, third = sender.leases
        contents = {lease: body_of(sender.batch_id, numbers, 9_000) for lease, numbers in sender.leases.items()}
        done = sender.whole(first, contents[first], ends=True)
        assert sender.plane.hand_in(done, ends=True).parts == {first: "stored"}
        sender.plane.release(ReleaseRequest(worker_id=sender.worker_id, leases=[second]))
        told = [part_of(lease, numbers, contents[lease]) for lease, numbers in sender.leases.items()]
        mixed = header_of(sender.worker_id, sender.batch_id, told) + b"".join(contents.values())
        answer = sender.plane.hand_in(mixed, ends=False)
        assert answer.parts == {first: "duplicate", second: "stale", third: "stored"}
        other = contents[first].replace(b"xx", b"xy", 1)
        assert sender.plane.hand_in(sender.whole(first, other), ends=False).parts == {first: "conflict"}
        with served.yard.store.read() as session:
            segment = session.exec(select(Segment).where(Segment.lease_id == third)).one()
            blob = session.exec(select(Blob).where(Blob.key == segment.blob_key)).one()
        assert (segment.start, segment.length, blob.bytes) == (0, len(contents[third]), len(contents[third]))
        assert served.yard.blobs.read(blob.key) == contents[third]


@pytest.mark.parametrize("lie", ["a bad last line", "too short", "too long", "too many rows", "an endless row number"])
def test_one_that_is_not_what_its_header_says_leaves_nothing(served: Served, lie: str) -> None:
    with worker(served, count=256) as sender:
        ((lease_id, numbers),) = sender.leases.items()
        content = body_of(sender.batch_id, numbers, 9_000)
        told = part_of(lease_id, numbers, content)
        if lie == "a bad last line":
            content = content[:-3] + b"zz\n"
        elif lie == "too short":
            told = told.model_copy(update={"length": len(content) + 1})
        elif lie == "too long":
            told = told.model_copy(update={"length": len(content) - len(content.splitlines(keepends=True)[-1])})
        elif lie == "too many rows":
            told = told.model_copy(update={"rows": "0-4096", "completed": 4097})
        else:
            told = told.model_copy(update={"rows": f"0-{10**30}"})
        with served.http(sender.key) as http:
            head = header_of(sender.worker_id, sender.batch_id, [told])
            answer = http.post("/workers/results", content=head + content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_hand_in")
        with served.yard.store.read() as session:
            assert not session.exec(select(Segment)).all()
            assert [blob.unreferenced_at is None for blob in session.exec(select(Blob))].count(True) == 1  # the input
        assert (
            len([path for path in Path(served.yard.blobs.root).rglob("*") if path.is_file() and path.name != MARKER])
            == 1
        )  # type: ignore[attr-defined]


def test_a_header_without_an_end_is_refused(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_ins, "MAX_HEADER_BYTES", 1000)
    with served_on_sqlite.http(served_on_sqlite.key("worker")) as http:
        answer = http.post("/workers/results", content=b"{" + b" " * 2000)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize("is_read", [True, False], ids=["of a live lease", "of a stale one"])
def test_one_without_a_declared_length_is_cut_off_at_the_bound(target: Target, is_read: bool) -> None:
    lease_id = target.ids["lease_id"] + (0 if is_read else 1_000)
    part = part_of(lease_id, [0], b"").model_copy(update={"length": segments.MAX_BYTES})
    head = header_of(target.ids["worker_id"], target.ids["batch_id"], [part])

    def pieces() -> Iterator[bytes]:
        yield head
        for _ in range(segments.MAX_BYTES // MIB):
            yield b"x" * MIB

    with target.http("worker") as http:
        answer = http.post("/workers/results", content=pieces(), timeout=120)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    ("lengths", "status", "code"),
    [([2**63 - 1], 400, "integer_above_max_value"), ([segments.MAX_BYTES, 1], 413, "too_large")],
    ids=["of a part", "of all parts"],
)
def test_a_header_that_says_more_than_a_body_holds_is_refused(
    served_on_sqlite: Served, lengths: list[int], status: int, code: str
) -> None:
    part = part_of(1, [0], b"").model_dump()
    parts = [part | {"lease_id": n, "length": length} for n, length in enumerate(lengths)]
    head = json.dumps({"worker_id": "wrk_nobody", "batch_id": "batch_none", "parts": parts}).encode()
    with served_on_sqlite.http(served_on_sqlite.key("worker")) as http:
        answer = http.post("/workers/results", content=head + b"\n")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_so_many_calls_of_an_org_are_taken_at_once(
    sqlite_databases: Databases, tmp_path: Path, until: Callable[..., None]
) -> None:
    with (
        serving(sqlite_databases.copy_of(migrate), tmp_path / "data", org_hand_ins=1) as served,
        worker(served, count=4) as sender,
    ):
        ((lease_id, numbers),) = sender.leases.items()
        whole = sender.whole(lease_id, body_of(sender.batch_id, numbers, 10))
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=30) as slow:
            head = f"POST /workers/results HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sender.key}\r\n"
            slow.sendall(f"{head}Content-Length: 100\r\n\r\n".encode())
            until(lambda: served.app.state.in_flight._of_all["hand_ins"] == 1)
            with pytest.raises(TryLater) as refused:
                sender.plane.hand_in(whole, ends=False, deadline_seconds=0)
            assert (refused.value.status, refused.value.code) == (429, "too_many_hand_ins")
            assert refused.value.retry_after
            with served.http(served.key("worker", org="other")) as http:
                assert http.post("/workers/results", content=whole).status_code == 404  # and no 429
        assert sender.plane.hand_in(whole, ends=False, deadline_seconds=30).parts == {lease_id: "stored"}
        until(lambda: not served.app.state.in_flight._of_org)


def test_what_an_org_sends_at_once_is_bounded_and_no_other_org_waits_for_it(
    sqlite_databases: Databases, tmp_path: Path, until: Callable[..., None]
) -> None:
    with (
        serving(sqlite_databases.copy_of(migrate), tmp_path / "data", org_hand_in_bytes=3 * MIB) as served,
        worker(served, count=256) as sender,
    ):
        ((lease_id, numbers),) = sender.leases.items()
        content = body_of(sender.batch_id, numbers, 5_000)
        whole = sender.whole(lease_id, content)
        assert MIB < len(whole) < 2 * MIB
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=30) as slow:
            head = f"POST /workers/results HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sender.key}\r\n"
            slow.sendall(f"{head}Content-Length: {2 * MIB}\r\n\r\n".encode())
            until(lambda: served.app.state.in_flight._of_all["hand_in_bytes"] == 2 * MIB)
            with pytest.raises(TryLater) as refused:
                sender.plane.hand_in(whole, ends=False, deadline_seconds=0)
            assert (refused.value.status, refused.value.code) == (429, "too_many_hand_in_bytes")
            assert refused.value.retry_after
            with served.http(served.key("worker", org="other")) as http:
                assert http.post("/workers/results", content=whole).status_code == 404  # and no 429
        assert sender.plane.hand_in(whole, ends=False, deadline_seconds=30).parts == {lease_id: "stored"}
        until(lambda: not served.app.state.in_flight._of_org)


def test_one_that_is_larger_than_the_bound_is_taken_alone(sqlite_databases: Databases, tmp_path: Path) -> None:
    with (
        serving(sqlite_databases.copy_of(migrate), tmp_path / "data", org_hand_in_bytes=1) as served,
        worker(served, count=4) as sender,
    ):
        ((lease_id, numbers),) = sender.leases.items()
        content = body_of(sender.batch_id, numbers, 10)
        whole = sender.whole(lease_id, content)
        assert sender.plane.hand_in(whole, ends=False, deadline_seconds=0).parts == {lease_id: "stored"}
