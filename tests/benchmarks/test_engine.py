"""The mock engine does what a runtime does, at the rate it was told, and hostile bytes do not end it."""

import json
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from benchmarks.engine_process import Engine

CHAT = "/v1/chat/completions"
Start = Callable[..., Engine]


def asked(text: str) -> dict[str, object]:
    return {"model": "mock", "messages": [{"role": "user", "content": text}]}


def load(programs: Path, engine: Engine, connections: int, requests: int) -> dict[str, float]:
    command = [programs / "load", str(engine.port), str(connections), str(requests), "200"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return dict(json.loads(done.stdout))


def raw(engine: Engine, content: bytes) -> bytes:
    """What the engine says to bytes that are no request of a client library."""
    with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as connection:
        connection.sendall(content)
        said = b""
        while part := connection.recv(65536):
            said += part
    return said


def test_a_row_gets_its_own_mark_back(start: Start) -> None:
    engine = start(4, 1, "--reply-bytes", "100")
    answer = httpx.post(engine.url + CHAT, json=asked("[[row-7]] and more")).json()
    content = answer["choices"][0]["message"]["content"]
    assert content.startswith("[[row-7]]x")
    assert len(content) == 100


def test_the_rate_is_slots_by_latency_whatever_the_client_sends_at_once(start: Start, programs: Path) -> None:
    engine = start(4, 20)
    assert load(programs, engine, 10, 200)["bad"] == 0
    stats = engine.stats()
    assert stats["max_working"] == 4
    assert stats["max_waiting"] == 6
    assert stats["span_seconds"] == pytest.approx(200 / engine.shape.limit, rel=0.2)
    assert stats["busy_seconds"] == pytest.approx(200 * 0.02)
    assert sum(completed for completed, _, _ in engine.timeline()) == 200


def test_a_full_queue_is_answered_503(start: Start) -> None:
    engine = start(1, 300, "--queue", "1")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: httpx.post(engine.url + CHAT, json=asked(f"[[{n}]]")), range(4)))
    assert sorted(answer.status_code for answer in found) == [200, 200, 503, 503]
    assert engine.stats()["refused"] == 2


def test_the_same_rows_straggle_for_every_client_and_each_third_answer_fails(start: Start, programs: Path) -> None:
    engine = start(64, 1, "--slow-every", "10", "--slow-ms", "30", "--fail-every", "3", "--fail-status", "500")
    busy = []
    for _ in range(2):
        engine.reset()
        assert load(programs, engine, 60, 60)["bad"] == 20
        busy.append(engine.stats()["busy_seconds"])
    assert busy[0] == busy[1] > 0.06


def test_a_client_that_leaves_frees_its_slot(start: Start) -> None:
    engine = start(1, 60_000)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(engine.url + CHAT, json=asked("gone"), timeout=0.2)
    engine.change(latency_ms=1)
    assert httpx.post(engine.url + CHAT, json=asked("[[here]]")).status_code == 200
    stats = engine.stats()
    assert (stats["aborted"], stats["completed"], stats["working"]) == (1, 1, 0)


def test_more_slots_let_those_begin_who_wait(start: Start) -> None:
    engine = start(1, 400)
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(httpx.post, engine.url + CHAT, json=asked(f"[[{n}]]")) for n in range(3)]
        while engine.stats()["waiting"] < 2:
            pass
        engine.change(slots=3)
        assert engine.stats()["working"] == 3
        assert [answer.result().status_code for answer in found] == [200, 200, 200]


def test_a_large_body_arrives_whole_in_one_piece_or_in_chunks(start: Start) -> None:
    engine = start(4, 1)
    content = json.dumps(asked("[[large]]" + "y" * 3_000_000)).encode()
    pieces = (content[i : i + 100_000] for i in range(0, len(content), 100_000))
    for body in (content, pieces):
        answer = httpx.post(engine.url + CHAT, content=body)
        assert "[[large]]" in answer.text
    assert engine.stats()["body_bytes"] == 2 * len(content)


def test_each_input_of_an_embedding_has_a_vector(start: Start) -> None:
    engine = start(4, 1, "--dimensions", "3")
    for given, count in (("a", 1), ([1, 2, 3], 1), (["a", 'b"]', "c"], 3), ([[1, 2], [3]], 2)):
        answer = httpx.post(f"{engine.url}/v1/embeddings", json={"model": "mock", "input": given}).json()
        assert [(entry["index"], len(entry["embedding"])) for entry in answer["data"]] == [(i, 3) for i in range(count)]


def test_it_looks_like_vllm(start: Start) -> None:
    engine = start(4, 1)
    assert httpx.get(f"{engine.url}/v1/models").json()["data"][0]["owned_by"] == "vllm"
    assert httpx.get(f"{engine.url}/health").status_code == 200
    assert 'vllm:num_requests_waiting{engine="0",model_name="mock"} 0.0' in httpx.get(f"{engine.url}/metrics").text
    assert CHAT in httpx.get(f"{engine.url}/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no request at all\r\n\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n", b"413"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length:\r\n\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n", b"413"),
        (b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, b"400"),
        (b"GET /stats HTTP/1.1\r\nconnection: close\r\n\r\nmore", b"200"),
    ],
)
def test_bad_bytes_are_refused(start: Start, content: bytes, said: bytes) -> None:
    assert raw(start(1, 1), content).split(b" ", 2)[1] == said


def test_requests_sent_ahead_are_answered_in_their_order(start: Start) -> None:
    engine = start(4, 5)
    requests = []
    for number in range(3):
        body = json.dumps(asked(f"[[ahead-{number}]]")).encode()
        close = b"connection: close\r\n" if number == 2 else b""
        head = b"POST /v1/chat/completions HTTP/1.1\r\n%scontent-length: %d\r\n\r\n" % (close, len(body))
        requests.append(head + body)
    said = raw(engine, b"".join(requests))
    places = [said.index(b"[[ahead-%d]]" % number) for number in range(3)]
    assert places == sorted(places)
