"""A worker's message with a strange value anywhere in it is answered, and never by a 500."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from app.client.errors import Dismissed
from app.schemas.workers import PROTOCOL
from tests.hands import Hands, hello
from tests.served import Served

NASTY: list[Any] = ["a\0b", "\u2028", "x" * 300, "", 10**30, -1, 2**63, None, [], {}, 1.5, True]


def messages(hands: Hands) -> dict[str, dict[str, Any]]:
    who = {"worker_id": hands.worker_id}
    return {
        "/workers/register": hello("gpu2").model_dump(mode="json") | {"held": [1]},
        f"/workers/{hands.worker_id}/heartbeat": {
            "boot_id": hands.boot_id,
            "phase": "ready",
            "current_invocations": 0,
            "leases": [1],
            "unstarted": [1],
            "spooled": [1],
            "sample": {"load1": 0.5, "cpus": 2, "memory_total": 1, "memory_available": 1, "disk_free": 1},
            "runtimes": hello().model_dump(mode="json")["runtimes"],
        },
        "/workers/claim": who | {"boot_id": hands.boot_id, "request_id": "r", "batch_id": "batch_1", "want_rows": 1},
        "/workers/start-row": who | {"boot_id": hands.boot_id, "lease_id": 1, "row": 1},
        "/workers/release": who | {"leases": [1], "reason": "drain"},
        "/workers/report-failure": who | {"lease_id": 1, "request_id": "r", "error": "no"},
        "/workers/progress": who | {"batch_id": "batch_1", "completed": 1, "failed": 0, "rows_per_second": 1.0},
        "/workers/model-progress": who
        | {
            "boot_id": hands.boot_id,
            "number": 1,
            "runtime": "ollama@here",
            "model": "m",
            "status": "pulling",
            "completed": 1,
            "total": 2,
            "error": "",
        },
    }


def variants(value: Any) -> Iterator[Any]:
    """Give the message with each of its values replaced by each nasty one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (value | {key: other} for other in variants(inner))
    elif isinstance(value, list) and value:
        yield from ([other, *value[1:]] for other in variants(value[0]))
        yield from NASTY
    else:
        yield from NASTY


@pytest.fixture
def hands(served: Served) -> Iterator[Hands]:
    made = Hands(served)
    yield made
    made.close()


def test_no_value_in_a_message_is_a_bug_of_ours(served: Served, hands: Hands) -> None:
    with served.http(served.key("worker")) as http:
        for path, message in messages(hands).items():
            good = http.post(path, json=message)
            assert good.status_code < 500, good.text
            for strange in variants(message):
                answer = http.post(path, json=strange, headers={"x-gpuyard-boot-id": hands.boot_id})
                assert answer.status_code < 500, f"{path} {strange}: {answer.text}"


def test_no_value_in_a_hand_in_is_a_bug_of_ours(served: Served, hands: Hands) -> None:
    end = {"lease_id": 1, "request_id": uuid4().hex}
    part = {"lease_id": 1, "seq": 1, "rows": "0", "completed": 1, "failed": 0, "length": 0}
    header = {"worker_id": hands.worker_id, "batch_id": "batch_1", "parts": [part], "ends": [end], "completed": 1}
    with served.http(served.key("worker")) as http:
        for strange in variants(header):
            body = http.build_request("POST", "/", json=strange).content + b"\n"
            answer = http.post("/workers/results", content=body)
            assert answer.status_code < 500, f"{strange}: {answer.text}"
        for body in (b"", b"\n", b"{}\n", b"null\n", b"\xff\n", b"{}", b"[" * 100_000 + b"\n"):
            answer = http.post("/workers/upload-results", content=body)
            assert (answer.status_code, set(answer.json())) == (400, {"error"}), body


def test_a_worker_of_another_protocol_gets_426_and_what_to_do(served_on_sqlite: Served) -> None:
    with closing(Hands(served_on_sqlite)) as hands, pytest.raises(Dismissed, match="install the same gpuyard") as said:
        hands.plane.register(hello("gpu2").model_copy(update={"protocol": PROTOCOL + 1}))
    assert (said.value.status, said.value.code) == (426, "protocol_mismatch")
