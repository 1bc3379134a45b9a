"""A yard for tests, and those who work in it: users, GPU workers and a control worker, as sentences.

Everything goes through the services, over a real database and real files. Time is the database's, moved by `later`.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from app.blobs.local import LocalBlobs
from app.db.store import Store
from app.db.tables import Org, Pool
from app.domain.outputs import output_line
from app.domain.rows import Reply, RowError, RowErrorCode
from app.domain.rowsets import RowSet
from app.domain.webhooks import networks
from app.domain.workers import ByeReason, Phase, Transport
from app.schemas.batches import NewBatch
from app.schemas.claims import (
    ClaimAnswer,
    ClaimRequest,
    EndAnswer,
    FailureReport,
    Grant,
    ReleaseRequest,
    RowStart,
    RowStartVerdict,
)
from app.schemas.handins import write_line
from app.schemas.segments import End, FirstRows, HandInAnswer, HandInHeader, Part
from app.schemas.workers import Bye, Heartbeat, HeartbeatAnswer, Hello, HostSample, RuntimeInfo, Welcome
from app.services import (
    batches,
    blobs,
    claims,
    control,
    files,
    handins,
    leases,
    pools,
    presence,
    row_starts,
    stops,
    workers,
)
from app.services.context import Bells, Caller, Limits, Silence, WebhookRules, Yard
from app.services.files import Upload
from app.services.heartbeats import heartbeat
from app.sweeps import lease_expiry
from tests.soundness import assert_sound as assert_sound  # noqa: PLC0414 - where every test of the yard finds it
from tests.stored import batch, control_job, events, lease, shards, states, worker  # noqa: F401 - the same

CHAT = "/v1/chat/completions"
USER = Caller("org_1", None, "tester", frozenset({"admin", "worker"}), operator=True)


def new_yard(store: Store, folder: Path, *, bells: Bells | None = None, **limits: Any) -> Yard:
    """A yard with one org, its pool `gpu`, and shards of four rows; heartbeats can be heard."""
    found = Yard(
        store=store,
        blobs=LocalBlobs(folder),
        limits=Limits(**{"shard_rows": 4, **limits}),
        webhooks=WebhookRules(folder.with_name("webhooks.key"), networks(["127.0.0.0/8"]), timeout_seconds=5),
        bells=bells or Silence(),
    )
    with store.begin() as session:
        now = store.now(session)
        session.add(Org(id="org_1", name="one", operator=True, created_at=now))
        session.flush()
        session.add(Pool(name="gpu", is_default=True, created_at=now))
    presence.tick(found)
    return found


def later(yard: Yard, seconds: float, *, listening: bool = True) -> None:
    """Move the database's time. `listening`: an API process ticked all the while."""
    with yard.store.read() as session:
        step = min(ladder.grace_seconds for ladder in (yard.timing, *pools.lived_ladders(session, yard).values())) / 2
    while listening and seconds > step:
        yard.store.clock_shift += timedelta(seconds=step)
        seconds -= step
        presence.tick(yard)
    yard.store.clock_shift += timedelta(seconds=seconds)
    if listening:
        presence.tick(yard)


def set_rungs(yard: Yard, pool_name: str = "gpu", **rungs: float) -> None:
    """Store rungs of a pool's own, whatever they are; none: the service's. Makes a pool that is not there."""
    with yard.store.begin() as session:
        pool = session.get(Pool, pool_name) or Pool(name=pool_name, created_at=yard.store.now(session))
        pool.timing = rungs
        session.add(pool)


# --- users


def input_file(yard: Yard, rows: int, *, models: Sequence[str] = ("m",), content: bytes | None = None) -> str:
    """Upload an input file; its rows take turns with `models`."""
    if content is None:
        content = b"".join(input_row(n, models[n % len(models)]) for n in range(rows))
    key, stored = blobs.write(yard, USER.org_id, [content])
    return files.create(yard, USER, key, stored, Upload(purpose="batch", filename="input.jsonl")).id


def input_row(number: int, model: str = "m", **asked: Any) -> bytes:
    """One line of an input file; `asked` are further parameters of its body."""
    body = {"model": model, "messages": [{"role": "user", "content": str(number)}], **asked}
    return json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": CHAT, "body": body}).encode() + b"\n"


def created(
    yard: Yard,
    rows: int = 4,
    *,
    models: Sequence[str] = ("m",),
    window: str = "24h",
    content: bytes | None = None,
    **wanted: Any,
) -> str:
    """Create a batch, and give its id."""
    file_id = input_file(yard, rows, models=models, content=content)
    new = NewBatch(input_file_id=file_id, endpoint=CHAT, completion_window=window, **wanted)
    return batches.create(yard, USER, new).id


def validated(yard: Yard, rows: int = 4, **wanted: Any) -> str:
    """Create a batch and have it validated."""
    batch_id = created(yard, rows, **wanted)
    Controller(yard).works()
    assert batch(yard, batch_id).state == "validated"
    return batch_id


def expire(yard: Yard) -> int:
    """A pass of the sweep that ends leases; gives how many it ended."""
    return lease_expiry.run_once(yard, 100)["ended"]


def cancel(yard: Yard, batch_id: str) -> None:
    """Cancel a batch as its owner."""
    stops.cancel(yard, USER, batch_id)


# --- workers


@dataclass
class Machine:
    """A GPU worker that said hello and beat once. `grants` are the leases it knows of."""

    yard: Yard
    name: str = "one"
    boot_id: str = field(default_factory=lambda: uuid4().hex)
    install_id: str = "install-one"
    models: Sequence[str] = ("m",)
    runtimes: Sequence[RuntimeInfo] = ()
    slots: int = 1
    caller: Caller = USER
    row_by_row: bool = True
    pool: str = "gpu"
    id: str = ""
    grants: dict[int, Grant] = field(default_factory=dict)
    _seqs: dict[int, int] = field(default_factory=dict)
    _heard: int | None = None

    def hello(self, *, held: Sequence[int] = (), phase: Phase = Phase.READY, **more: Any) -> Welcome:
        hello = Hello(
            name=self.name,
            install_id=self.install_id,
            boot_id=self.boot_id,
            pool=self.pool,
            transport=Transport.HTTP,
            phase=phase,
            slots=self.slots,
            held=list(held),
            runtimes=list(self.runtimes) or [runtime(*self.models)],
            row_by_row=self.row_by_row,
            **more,
        )
        welcome = workers.register(self.yard, self.caller, hello)
        self.id = welcome.worker_id
        return welcome

    def claim(
        self, *, want: int = 4, running: str | None = None, request: str | None = None, hint: str | None = None
    ) -> ClaimAnswer:
        asked = ClaimRequest(
            worker_id=self.id,
            boot_id=self.boot_id,
            request_id=request or uuid4().hex,
            batch_id=running or hint,
            started=running is not None,
            want_rows=want,
        )
        answer = claims.claim(self.yard, self.caller, asked)
        self.grants.update({grant.lease_id: grant for grant in answer.grants})
        return answer

    def beat(
        self, *listed: int, unstarted: Sequence[int] = (), phase: Phase = Phase.READY, **more: Any
    ) -> HeartbeatAnswer:
        beat = self.beat_now(*listed, unstarted=unstarted, phase=phase, **more)
        answer = heartbeat(self.yard, self.caller, self.id, beat)
        self._heard = answer.at
        return answer

    def beat_now(
        self, *listed: int, unstarted: Sequence[int] = (), phase: Phase = Phase.READY, **more: Any
    ) -> Heartbeat:
        """A beat that is begun now, and may come late."""
        return Heartbeat(
            boot_id=self.boot_id,
            after=self._heard,
            phase=phase,
            leases=list(listed),
            unstarted=list(unstarted),
            **more,
        )

    def hand_in(
        self,
        batch_id: str,
        finished: dict[int, Collection[int]],
        *,
        ends: Sequence[int] = (),
        seq: int | None = None,
        answer: str = "ok",
        failed: bool = False,
        request: str = "end",
        first_rows: FirstRows | None = None,
    ) -> HandInAnswer:
        """Hand in rows by lease, and end leases. Without `seq` each part has the next number of its lease."""
        parts, body = [], b""
        for lease_id, rows in finished.items():
            content = part_content(batch_id, rows, answer=answer, failed=failed)
            self._seqs[lease_id] = number = seq if seq is not None else self._seqs.get(lease_id, 0) + 1
            parts.append(part(lease_id, number, rows, content, failed=failed))
            body += content
        header = HandInHeader(
            worker_id=self.id,
            batch_id=batch_id,
            parts=parts,
            ends=[End(lease_id=i, request_id=request) for i in ends],
            first_rows=first_rows,
        )
        return handins.hand_in(self.yard, self.caller, header, body, boot_id=self.boot_id)

    def start_row(self, lease_id: int, row: int) -> RowStartVerdict:
        """Name the row of a cautious shard that is to start."""
        start = RowStart(worker_id=self.id, boot_id=self.boot_id, lease_id=lease_id, row=row)
        return row_starts.start_row(self.yard, self.caller, start).verdict

    def finish(self, batch_id: str, grant: Grant) -> HandInAnswer:
        """Hand in the rest of a shard and end it."""
        rest = RowSet.span(grant.first_row, grant.rows) - RowSet.parse(grant.done)
        return self.hand_in(batch_id, {grant.lease_id: list(rest)}, ends=[grant.lease_id])

    def release(self, *lease_ids: int, unstarted: bool = False) -> EndAnswer:
        asked = ReleaseRequest(worker_id=self.id, leases=list(lease_ids), unstarted=unstarted)
        return leases.release(self.yard, self.caller, asked, boot_id=self.boot_id)

    def fail(self, lease_id: int, error: str = "it broke", request: str | None = None) -> EndAnswer:
        report = FailureReport(worker_id=self.id, lease_id=lease_id, request_id=request or uuid4().hex, error=error)
        return leases.fail(self.yard, self.caller, report, boot_id=self.boot_id)

    def bye(self, *, spooled: Sequence[int] = ()) -> None:
        word = Bye(boot_id=self.boot_id, reason=ByeReason.SIGNAL, spooled=list(spooled))
        workers.bye(self.yard, self.caller, self.id, word)

    def restarted(self) -> "Machine":
        """The same install, started again; it has not said hello."""
        return replace(self, boot_id=uuid4().hex, grants={}, _seqs={}, _heard=None)

    def dies(self) -> "Machine":
        """Its process ends in mid-row and is started again: what it held is lost. It is ready for work."""
        again = self.restarted()
        again.hello()
        again.beat()
        return again


def runtime(*models: str, kind: str = "vllm", **more: Any) -> RuntimeInfo:
    """A runtime that is alive, as a worker that says nothing of parameters tells of it."""
    return RuntimeInfo(name=kind, kind=kind, alive=True, models=list(models), endpoints=[CHAT], **more)


def machine(
    yard: Yard,
    name: str = "one",
    *,
    models: Sequence[str] = ("m",),
    slots: int = 1,
    runtimes: Sequence[RuntimeInfo] = (),
    row_by_row: bool = True,
) -> Machine:
    """A ready GPU worker with one runtime, or those given."""
    made = Machine(
        yard,
        name,
        install_id=f"install-{name}",
        models=models,
        slots=slots,
        runtimes=runtimes,
        row_by_row=row_by_row,
    )
    made.hello()
    made.beat()
    return made


def grants_of(one: Machine, count: int = 1) -> list[int]:
    """Claim that many shards of four rows each; gives their leases."""
    return [grant.lease_id for grant in one.claim(want=4 * count).grants]


def busy(load1: float = 0.0, memory: int = 10**12) -> HostSample:
    """A host's sample: load on one CPU, free memory in bytes."""
    return HostSample(load1=load1, cpus=1, memory_available=memory)


def part_content(batch_id: str, rows: Collection[int], *, answer: str = "ok", failed: bool = False) -> bytes:
    """The lines of finished rows."""
    reply = (
        Reply(error=RowError(RowErrorCode.REQUEST_TIMEOUT, answer))
        if failed
        else Reply(status=200, body=json.dumps(answer).encode())
    )
    lines = [write_line(row, reply, output_line(batch_id, row, f"row-{row}", reply)) for row in sorted(rows)]
    return b"".join(lines)


def part(lease_id: int, seq: int, rows: Collection[int], content: bytes, *, failed: bool = False) -> Part:
    """A part's header."""
    return Part(
        lease_id=lease_id,
        seq=seq,
        rows=str(RowSet.of(rows)),
        completed=0 if failed else len(rows),
        failed=len(rows) if failed else 0,
        length=len(content),
    )


@dataclass
class Controller:
    """A control worker without threads: each call is one step of it."""

    yard: Yard
    name: str = "control"
    id: str = ""

    def hello(self) -> "Controller":
        hello = Hello(
            name=self.name,
            install_id=self.name,
            boot_id=self.name,
            pool=control.QUEUE,
            transport=Transport.CONTROL,
            phase=Phase.READY,
            slots=0,
        )
        self.id = workers.register(self.yard, USER, hello).worker_id
        return self

    def claims(self) -> control.ControlGrant | None:
        if not self.id:
            self.hello()
        return control.claim_control(self.yard, self.id, uuid4().hex)

    def works(self) -> int:
        """Do all control work there is, and count it."""
        done = 0
        while (grant := self.claims()) is not None:
            control.perform(self.yard, grant)
            done += 1
        return done


# --- what is stored


def result_files(yard: Yard, batch_id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of the output and of the error file."""
    found = batch(yard, batch_id)
    contents: list[list[dict[str, Any]]] = []
    for file_id in (found.output_file_id, found.error_file_id):
        if file_id is None:
            contents.append([])
            continue
        where = files.content(yard, USER, file_id)
        lines = yard.blobs.read(where.blob_key).splitlines()
        contents.append([json.loads(line) for line in lines])
    return contents[0], contents[1]
