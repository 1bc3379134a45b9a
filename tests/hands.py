"""A control worker and a GPU worker that do one thing at a time, when a test says so; over the API's own wire."""

import json
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from app.client.control_plane import ControlPlane
from app.domain.outputs import output_line
from app.domain.rows import Reply, Usage
from app.domain.rowsets import RowSet
from app.domain.workers import Phase, Transport
from app.schemas.claims import ClaimRequest, Grant
from app.schemas.handins import write_line
from app.schemas.segments import End, HandInHeader, Part
from app.schemas.wire import UsageCounts
from app.schemas.workers import Hello, RuntimeInfo
from app.services import control, workers
from app.services.context import Caller, Yard
from tests.served import Served

USAGE = Usage(input_tokens=7, cached_tokens=2, output_tokens=3, reasoning_tokens=1, total_tokens=10)
ANSWER = Reply(status=200, body=b'{"ok":true}', request_id="req_1", usage=USAGE)
REFUSED = Reply(status=400, body=b'{"error":{"message":"no"}}', request_id="req_2")


def runtime(*models: str) -> RuntimeInfo:
    """A runtime that serves these models on every endpoint."""
    endpoints = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
    return RuntimeInfo(name="r", kind="vllm", alive=True, models=list(models), endpoints=endpoints)


def hello(name: str = "gpu1", *models: str, pool: str = "gpu", slots: int = 1) -> Hello:
    """What a worker says first."""
    return Hello(
        name=name,
        install_id=f"install-{name}",
        boot_id=f"boot-{name}",
        pool=pool,
        transport=Transport.HTTP,
        phase=Phase.READY,
        slots=slots,
        runtimes=[runtime(*(models or ("m",)))],
    )


Claim = Callable[[Yard, str, str], control.ControlGrant | None]


def do_control_work(served: Served, *, claim: Claim = control.claim_control, yard: Yard | None = None) -> None:
    """Do all control work that is due, of the kind that `claim` gives; by the rules of `yard` where one is given."""
    yard = yard or served.yard
    caller = Caller(served.operator().org_id, None, "control@test", frozenset({"worker"}), operator=True)
    word = hello("control-test").model_copy(update={"pool": control.QUEUE, "transport": Transport.CONTROL})
    worker_id = workers.register(yard, caller, word).worker_id
    while (grant := claim(yard, worker_id, uuid4().hex)) is not None:
        control.perform(yard, grant)


class Hands:
    """A GPU worker that is already registered."""

    def __init__(self, served: Served, name: str = "gpu1", *models: str, pool: str = "gpu") -> None:
        word = hello(name, *models, pool=pool)
        self.plane = ControlPlane(served.url, served.key("worker"), boot_id=word.boot_id)
        self.boot_id = word.boot_id
        self.worker_id = self.plane.register(word).worker_id

    def claim(self, want_rows: int = 100_000) -> tuple[str, list[Grant], str]:
        """Claim shards: the batch, its grants and where its input is."""
        request = ClaimRequest(
            worker_id=self.worker_id, boot_id=self.boot_id, request_id=uuid4().hex, want_rows=want_rows
        )
        answer = self.plane.claim(request)
        return (answer.batch.id, answer.grants, answer.batch.input_path) if answer.batch else ("", [], "")

    def finish(self, batch_id: str, grant: Grant, input_path: str, reply: Callable[[int], Reply]) -> None:
        """Run a shard's rows and hand them in with its end."""
        lines = self.plane.download(input_path, grant.start, grant.end).splitlines()
        replies = {grant.first_row + n: reply(grant.first_row + n) for n in range(grant.rows)}
        body = b"".join(
            write_line(row, replies[row], output_line(batch_id, row, json.loads(line)["custom_id"], replies[row]))
            for row, line in zip(replies, lines, strict=True)
        )
        part = Part(
            lease_id=grant.lease_id,
            seq=1,
            rows=str(RowSet.of(replies)),
            completed=sum(found.ok for found in replies.values()),
            failed=sum(not found.ok for found in replies.values()),
            usage=UsageCounts.of(sum((found.usage for found in replies.values()), Usage())),
            length=len(body),
        )
        header = HandInHeader(
            worker_id=self.worker_id,
            batch_id=batch_id,
            parts=[part],
            ends=[End(lease_id=grant.lease_id, request_id=uuid4().hex)],
        )
        answer = self.plane.hand_in(header.model_dump_json().encode() + b"\n" + body, ends=True)
        assert set(answer.ends.values()) == {"ended"}, answer

    def work(self, reply: Callable[[int], Reply] = lambda _row: ANSWER) -> None:
        """Do all that may be claimed."""
        while True:
            batch_id, grants, path = self.claim()
            if not grants:
                return
            for grant in grants:
                self.finish(batch_id, grant, path, reply)

    def close(self) -> None:
        """Close the connections."""
        with suppress(Exception):
            self.plane.close()
