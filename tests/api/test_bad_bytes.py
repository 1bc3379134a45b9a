"""Bytes that no client of ours sends: raw ones on the socket, forms and hand-ins with a few things wrong, odd headers.

As `test_bad_input`, for what an OpenAPI cannot say. The same in every run; GPUYARD_TEST_EXAMPLES makes it more.
"""

import json
import os
import socket
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.access import ACCESS
from app.domain.outputs import output_line
from app.domain.rows import Reply
from app.schemas.handins import write_line
from app.schemas.segments import End, HandInHeader, Part
from tests.api_target import ON_SQLITE_LATER, Target, bounded
from tests.served import rows

pytestmark = pytest.mark.timeout(300)  # thousands of calls
EXAMPLES = int(os.environ.get("GPUYARD_TEST_EXAMPLES", "60"))
ANSWER_SECONDS = 20.0
fuzzed = bounded(EXAMPLES)
BODIES: tuple[bytes, ...] = (
    *(b"", b"\x00", b"\xff\xfe", b"null", b"[]", b'"x"', b"1", b"{", b"{}", b"[" * 100_000, b'{"a":' * 100_000),
    *(b"9" * 5000, b'{"a":NaN}', b'{"a":1e999}', b'{"a":"\\ud83d"}', b'{"a":"\\u0000"}', b"\xef\xbb\xbf{}", b"{}x"),
    *("{}".encode("utf-16"), "{}".encode("utf-32"), b'{"\\ud800":1}', b" " * 100_000, b"a=b&c=d", b"--x\r\n\r\n--x--"),
)
TYPES = ("application/json", "text/plain", "multipart/form-data; boundary=x", "multipart/form-data", "a/b;", "\xe9", "")
STRANGE = [
    "",
    "x",
    "-1",
    "0",
    "9" * 400,
    "1e3",
    "\xff\xfe",
    "a,b;c=d",
    "bytes=0-0,5-",
    "x" * 4000,
    '"',
    "%00",
    "*",
    "W/",
]


def checked(answer: httpx.Response) -> httpx.Response:
    """Assert that this is an answer: no bug, and every error in the envelope."""
    assert answer.status_code < 500, f"{answer.request.method} {answer.request.url}: {answer.text}"
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        error = answer.json()
        assert set(error) == {"error"}, error
        assert set(error["error"]) == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"]
    return answer


def routes(target: Target) -> list[tuple[str, str]]:
    """Every route of the API with ids that exist in its path, as method and path."""
    names = {name: str(value) for name, value in target.ids.items()} | {
        "token_id": "tok_1",
        "endpoint_id": "we_1",
        "model_id:path": "m",
    }
    split = [route.partition(" ") for route in ACCESS]
    return [(method, path.format_map(_Names(names))) for method, _, path in split]


class _Names(dict[str, str]):
    """A path's names; the kind of one (`{model_id:path}`) stands for nothing here."""

    def __getitem__(self, name: str) -> Any:
        return _Name(super().__getitem__(name))


class _Name(str):
    __slots__ = ()

    def __format__(self, kind: str) -> str:
        return str(self)


@ON_SQLITE_LATER
@pytest.mark.parametrize("key", ["admin", "submit", "worker"])
def test_every_route_answers_to_every_body(target: Target, key: str) -> None:
    with target.http(key) as http:
        for method, path in routes(target):
            if method not in {"POST", "PATCH"} or path.endswith(("/drain", "/reset", "/cancel")):
                continue
            for number, body in enumerate(BODIES):
                kind = "application/json" if number % 3 else TYPES[number // 3 % len(TYPES)]
                headers = {"content-type": kind.encode("latin-1")}
                checked(http.request(method, path, content=body, headers=headers))


@ON_SQLITE_LATER
def test_every_route_answers_to_every_method(target: Target) -> None:
    with target.http("admin") as http:
        for path in {path for _, path in routes(target)} | {
            "/",
            "/v1",
            "//",
            "/v1//files",
            "/%2e%2e/x",
            "/v1/files/%ff",
        }:
            for method in ("PUT", "OPTIONS", "TRACE", "HEAD", "FOO"):
                checked(http.request(method, path))


def test_every_header_may_say_anything(target: Target) -> None:
    ids = target.ids
    calls: list[tuple[str, str, str]] = [
        ("GET", f"/v1/files/{ids['file_id']}/content", "range"),
        ("GET", f"/v1/files/{ids['file_id']}/content", "if-none-match"),
        ("GET", f"/v1/files/{ids['file_id']}/content", "if-range"),
        ("POST", "/v1/batches", "idempotency-key"),
        ("POST", "/v1/batches", "x-stainless-retry-count"),
        ("GET", f"/v1/batches/{ids['batch_id']}/results", "accept"),
        ("GET", "/v1/files", "authorization"),
        ("GET", "/v1/files", "x-request-id"),
        ("POST", "/v1/files", "content-type"),
        ("POST", "/workers/release", "x-gpuyard-boot-id"),
    ]
    wanted = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": ids["file_id"]}
    with target.http("admin") as admin, target.http("worker") as worker:
        for method, path, name in calls:
            http = worker if path.startswith("/workers") else admin
            body = wanted if path == "/v1/batches" else {"worker_id": ids["worker_id"], "leases": []}
            for value in STRANGE:
                headers = {"content-type": "application/json", name: value}
                content = json.dumps(body).encode() if method == "POST" else b""
                raw = [(key.encode(), text.encode("latin-1")) for key, text in headers.items()]
                checked(http.request(method, path, content=content, headers=raw))


def test_a_range_that_cannot_be_has_the_envelope_too(target: Target) -> None:
    """OPENAI_CONTRACT 1.10."""
    with target.http("admin") as http:
        answer = checked(http.get(f"/v1/files/{target.ids['file_id']}/content", headers={"range": "bytes=99999-"}))
    assert (answer.status_code, answer.json()["error"]["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"].startswith("bytes */")


@st.composite
def spoilt(draw: st.DrawFn, data: bytes, *, most: int = 4) -> bytes:
    """The data, in which a few bytes are other ones, missing, or too many."""
    found = bytearray(data)
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(found)))
        if draw(st.booleans()):
            del found[at : at + draw(st.integers(1, 30))]
        else:
            pieces = [
                b"\r\n",
                b"\n",
                b"\0",
                b"\xff",
                b'"',
                b"--",
                b":",
                b"\t",
                b"\\ud800",
                b"9" * 25,
                b"-1",
                b"{",
                b"x" * 70,
            ]
            found[at:at] = draw(st.sampled_from(pieces) | st.binary(max_size=8))
    return bytes(found)


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="expires_after[anchor]"\r\n\r\ncreated_at\r\n'
    b'--b\r\nContent-Disposition: form-data; name="expires_after[seconds]"\r\n\r\n3600\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n'
    b"Content-Type: application/jsonl\r\n\r\n" + rows(1) + b"\r\n--b--\r\n"
)


def test_a_form_with_a_few_things_wrong_is_taken_or_refused(target: Target) -> None:
    with target.http("submit") as http:

        @fuzzed
        @given(spoilt(FORM), st.sampled_from([b"b", b"b", b"b", b"\xff", b"", b'"b', b"x" * 300]))
        def send(form: bytes, boundary: bytes) -> None:
            headers = {b"content-type": b"multipart/form-data; boundary=" + boundary}
            answer = checked(http.post("/v1/files", content=form, headers=headers))
            assert answer.status_code in {200, 400, 413}

        send()


def test_a_hand_in_with_a_few_things_wrong_is_taken_or_refused(target: Target) -> None:
    ids, reply = target.ids, Reply(status=200, body=b'{"a":"b"}')
    with target.http("worker") as http:

        def hand_in(seq: int) -> bytes:
            body = write_line(0, reply, output_line(ids["batch_id"], 0, "row-0", reply))
            part = Part(lease_id=ids["lease_id"], seq=seq, rows="0", completed=1, failed=0, length=len(body))
            header = HandInHeader(
                worker_id=ids["worker_id"],
                batch_id=ids["batch_id"],
                parts=[part],
                ends=[End(lease_id=ids["lease_id"], request_id="r")],
            )
            return header.model_dump_json().encode() + b"\n" + body

        @fuzzed
        @given(st.integers(1, 3).flatmap(lambda seq: spoilt(hand_in(seq))))
        def send(content: bytes) -> None:
            assert checked(http.post("/workers/results", content=content)).status_code in {200, 400, 404}

        send()


HEAD = "GET /v1/files?limit=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 2\r\n\r\n{{}}"


def test_whatever_comes_on_the_socket_the_api_lives(target: Target) -> None:
    """Each connection is left open for as long as its own answer takes, and half of them say too little to have one."""
    request = HEAD.format(key=target.keys["admin"]).encode()
    lines = st.sampled_from(
        [
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"POST /v1/batches HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            b"POST /v1/batches HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            b"POST /v1/batches HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            b"POST /v1/batches HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
            b"GET /v1/files HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        ]
    )

    @fuzzed
    @given(spoilt(request, most=6) | st.binary(max_size=200) | lines, st.booleans())
    def send(content: bytes, is_cut: bool) -> None:
        with socket.create_connection(target.api.address, timeout=ANSWER_SECONDS) as connection:
            try:
                connection.sendall(content)
                if is_cut:
                    return
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(65_536)
                if answer.startswith(b"HTTP/1.1 4") and answer.endswith(b"\r\n\r\n"):
                    answer += connection.recv(65_536)  # the body of an error came a moment after its head
            except (ConnectionResetError, BrokenPipeError):
                return
            head, _, body = answer.partition(b"\r\n\r\n")
            assert not head or head.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), answer
            if head.startswith(b"HTTP/1.1 4") and not content.startswith(b"HEAD"):
                assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}

    send()
    with target.http("nobody") as http:
        assert http.get("/healthz").status_code == 200


def answer_to(target: Target, *pieces: bytes) -> bytes:
    """Everything that comes back on one connection before it is closed."""
    with socket.create_connection(target.api.address, timeout=ANSWER_SECONDS) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):  # refused before its end: what it was told may be read
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def test_bytes_that_are_no_http_are_refused_in_the_envelope(target: Target) -> None:
    """OPENAI_CONTRACT 1.10."""
    head, _, body = answer_to(target, b"FOO /v1/files HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"x-request-id: req_" in head
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_endless_headers_are_refused_and_not_kept(target: Target) -> None:
    answer, sent = b"", 0
    with socket.create_connection(target.api.address, timeout=ANSWER_SECONDS) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(b"GET / HTTP/1.1\r\nx: ")
            while sent < 100_000_000:
                connection.sendall(b"y" * 10_000)
                sent += 10_000
        with suppress(ConnectionResetError):  # the system may throw the answer away with what nobody read
            answer = connection.makefile("rb").read()
    assert sent < 20_000_000, "what the system itself holds in flight is less"
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
