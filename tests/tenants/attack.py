"""What a hostile org does, all of it at the same time: `python -m tests.tenants.attack` reads a plan.

It prints what was answered.
It runs as a process of its own, at the lowest priority, so that it takes processor time only when nobody else wants it;
a real attacker takes none of this machine's. It is bounded in time (`seconds` of the plan, and one more call each), in
rate (`ATTACKS`: the pause after each round; 50 connections of a kind a second), in count (500 connections of a kind)
and in place: everything it calls, and the silent webhook host, is on the loopback.
"""

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cache
from typing import Any

from tests.tenants.hostile import BOUNDARY, MIB, Act, Attack, Plan, batch_of, form
from tests.tenants.wire import Answer, Connection, answer, begun

STREAMS, STALLED, SLOW_UPLOADS = 500, 300, 100
TRY_SECONDS = 0.05
HUGE = 10**400
PIECE_BYTES, PIECE_SECONDS = 256 * 1024, 0.005
BEGUN_SECONDS, OPEN_SECONDS = 5.0, 0.02
ONCE = 1e9
"""The pause of what is done once and then held."""


async def at_once(calls: Iterable[Awaitable[Answer]]) -> AsyncIterator[str]:
    """Make calls side by side."""
    for found in asyncio.as_completed([asyncio.ensure_future(call) for call in calls]):
        yield (await found).label


async def absurd_timings(org: Attack) -> AsyncIterator[str]:
    """Numbers of a pool that stop every expiry, or look like an absence."""
    for timing in (
        "6,1e300,1e301",
        "6,6.01,60",
        "1e-300,1e-200,1e-100",
        "-1,-2,-3",
        "1e308,1e308,1e308",
        f"{HUGE},1,1",
    ):
        renew, grace, toleration = timing.split(",")
        rungs = f'"renew_seconds":{renew},"grace_seconds":{grace},"toleration_seconds":{toleration}'
        body = f'{{"name":"{org.fresh()}","shared":false,"timing":{{{rungs}}}}}'.encode()
        yield (await org.admin.call("POST", "/v1/pools", body)).label


async def webhook_tests(org: Attack) -> AsyncIterator[str]:
    """200 at the same time."""
    path = f"/v1/webhook_endpoints/{org.endpoint}/test"
    async for label in at_once(org.admin.call("POST", path, {"event_type": "batch.completed"}) for _ in range(200)):
        yield label


async def readyz(org: Attack) -> AsyncIterator[str]:
    """Without a key."""
    async for label in at_once(org.nobody.call("GET", "/readyz") for _ in range(20)):
        yield label


async def absurd_samples(org: Attack) -> AsyncIterator[str]:
    """Integers of 400 digits in a heartbeat."""
    gpu = {"index": HUGE, "name": "g", "memory_total": HUGE, "memory_used": HUGE}
    samples: list[dict[str, Any]] = [{"memory_total": HUGE}, {"cpus": HUGE, "disk_free": HUGE}, {"gpus": [gpu]}]
    for sample in samples:
        beat = {"boot_id": "b", "phase": "ready", "sample": sample}
        yield (await org.worker.call("POST", f"/workers/{org.worker_id}/heartbeat", beat)).label


async def many_models(org: Attack) -> AsyncIterator[str]:
    """A batch that names 6,000 of them."""
    yield (await org.admin.call("POST", "/v1/batches", batch_of(org.many_models))).label


async def claims(org: Attack) -> AsyncIterator[str]:
    """Which judge those batches."""
    asked = {"worker_id": org.worker_id, "boot_id": "b", "request_id": org.fresh(), "want_rows": 1}
    yield (await org.worker.call("POST", "/workers/claim", asked)).label


async def _large_hand_in(org: Attack) -> Answer:
    part = {"lease_id": 1, "seq": 1, "rows": "0", "completed": 1, "failed": 0, "length": 200 * MIB}
    head = json.dumps({"worker_id": "wrk_none", "batch_id": org.batch, "parts": [part]}).encode() + b"\n"
    reader, writer = await org.worker.open("POST", "/workers/results", head, length=len(head) + 200 * MIB)
    try:
        answered = asyncio.ensure_future(answer(reader))
        for _ in range(200 * MIB // PIECE_BYTES):
            writer.write(bytes(PIECE_BYTES))
            await writer.drain()
            await asyncio.sleep(PIECE_SECONDS)
            if answered.done():
                break
        return await answered
    except OSError:
        return Answer(0)
    finally:
        writer.close()


async def large_hand_ins(org: Attack) -> AsyncIterator[str]:
    """Four of 200 MiB, by a worker that is not there."""
    async for label in at_once(_large_hand_in(org) for _ in range(4)):
        yield label


async def unknown_ends(org: Attack) -> AsyncIterator[str]:
    """10,000 leases that nobody granted."""
    ends = [{"lease_id": 10**6 + number, "request_id": "r"} for number in range(10_000)]
    header = {"worker_id": org.worker_id, "batch_id": org.batch, "ends": ends}
    yield (await org.worker.call("POST", "/workers/upload-results", json.dumps(header).encode() + b"\n")).label


async def _held(hold: Callable[[Connection], None], opened: Iterable[Awaitable[Connection]]) -> AsyncIterator[str]:
    """Open connections and keep them; the status of each, or `open` where no answer has begun."""
    readers = []
    for one in opened:
        connection = await one
        hold(connection)
        readers.append(asyncio.ensure_future(begun(connection[0])))
        await asyncio.sleep(OPEN_SECONDS)
    done, waiting = await asyncio.wait(readers, timeout=BEGUN_SECONDS)
    for found in done:
        yield str(found.result() or "closed")
    for _ in waiting:
        yield "open"


async def streams(org: Attack) -> AsyncIterator[str]:
    """500 of them."""
    async for label in _held(
        org.hold, (org.admin.open("GET", f"/v1/batches/{org.batch}/events") for _ in range(STREAMS))
    ):
        yield label


async def stalled_downloads(org: Attack) -> AsyncIterator[str]:
    """Of a large file, by readers that do not read."""
    path = f"/v1/files/{org.file}/content"
    async for label in _held(org.hold, (org.admin.open("GET", path, deaf=True) for _ in range(STALLED))):
        yield label


async def slow_uploads(org: Attack) -> AsyncIterator[str]:
    """Uploads that have begun and do not go on. Nothing of the org is uploaded beside them: they end half way."""
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    begin = form(b"{}\n")[:-20]
    uploads = (
        org.admin.open("POST", "/v1/files", begin, headers=headers, length=50 * MIB) for _ in range(SLOW_UPLOADS)
    )
    held: list[Connection] = []
    async for label in _held(held.append, uploads):
        yield label
    await asyncio.sleep(org.plan.seconds / 4)
    for _, writer in held:
        writer.close()


async def _until_refused(call: Callable[[], Awaitable[Answer]]) -> AsyncIterator[str]:
    found = ""
    while found != "429 limit_reached":
        found = (await call()).label
        yield found
        await asyncio.sleep(TRY_SECONDS)


async def pools(org: Attack) -> AsyncIterator[str]:
    """Up to the quota."""
    async for label in _until_refused(
        lambda: org.admin.call("POST", "/v1/pools", {"name": org.fresh(), "shared": False})
    ):
        yield label


async def endpoints(org: Attack) -> AsyncIterator[str]:
    """Up to the quota."""
    wanted = {"url": org.silent_url, "event_types": ["batch.completed"]}
    async for label in _until_refused(
        lambda: org.admin.call("POST", "/v1/webhook_endpoints", wanted | {"name": org.fresh()})
    ):
        yield label


async def files(org: Attack) -> AsyncIterator[str]:
    """Up to the quota."""
    async for label in _until_refused(lambda: org.upload(b"{}\n")):
        yield label


async def batches(org: Attack) -> AsyncIterator[str]:
    """Up to the quota."""
    async for label in _until_refused(lambda: org.admin.call("POST", "/v1/batches", batch_of(org.few))):
        yield label


async def foreign_worker(org: Attack) -> AsyncIterator[str]:
    """Every route of a worker, in the name of the honest org's."""
    name = {"worker_id": org.plan.honest_worker}
    lease = name | {"lease_id": 1, "request_id": "r"}
    calls: dict[str, dict[str, Any]] = {
        f"{org.plan.honest_worker}/heartbeat": {"boot_id": "b", "phase": "draining"},
        f"{org.plan.honest_worker}/bye": {"boot_id": "b", "reason": "drain"},
        "claim": name | {"boot_id": "b", "request_id": "r"},
        "release": name | {"leases": list(range(1, 200))},
        "report-failure": lease | {"error": "x"},
        "start-row": name | {"boot_id": "b", "lease_id": 1, "row": 0},
        "upload-results": name | {"batch_id": org.batch, "ends": [{"lease_id": 1, "request_id": "r"}]},
        "progress": name | {"batch_id": org.batch, "completed": 10, "failed": 0, "rows_per_second": 1.0},
    }
    for route, body in calls.items():
        content = json.dumps(body).encode() + b"\n"
        yield (await org.worker.call("POST", f"/workers/{route}", content)).label


async def foreign_leases(org: Attack) -> AsyncIterator[str]:
    """Every lease there may be, those of control work among them, by a worker that was granted none."""
    name, leases = {"worker_id": org.idle_id}, list(range(1, 300))
    ends = [{"lease_id": lease, "request_id": "r"} for lease in leases]
    calls: dict[str, dict[str, Any]] = {
        f"{org.idle_id}/heartbeat": {"boot_id": "b", "phase": "ready", "leases": leases},
        "release": name | {"leases": leases},
        "upload-results": name | {"batch_id": org.batch, "ends": ends},
        "report-failure": name | {"lease_id": 2, "request_id": "r", "error": "x"},
    }
    for route, body in calls.items():
        found = await org.worker.call("POST", f"/workers/{route}", json.dumps(body).encode() + b"\n")
        taken = any(word in found.body for word in (b'"ended"', b'"renewed"', b'"incomplete"'))
        yield f"{found.label} taken" if taken else found.label


async def control_work(org: Attack) -> AsyncIterator[str]:
    """A worker of the pool that validates and finalizes."""
    for transport in ("http", "control"):
        hello = org.hello | {"name": "hostile-control", "pool": "control", "transport": transport}
        yield (await org.worker.call("POST", "/workers/register", hello)).label


async def drains(org: Attack) -> AsyncIterator[str]:
    """Another org's worker, by its name and by its id."""
    for name in (org.plan.honest_name, org.plan.honest_worker):
        for verb in ("drain", "reset"):
            yield (await org.admin.call("POST", f"/v1/workers/{name}/{verb}")).label


async def deep_json(org: Attack) -> AsyncIterator[str]:
    """Deep, huge, and with numbers that are long."""
    bodies = [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"name":"' + b"x" * 20 * MIB + b'"}',
        b'{"priority":' + b"9" * 10**6 + b"}",
    ]
    for path in ("/v1/batches", "/v1/pools", "/v1/tokens"):
        for body in bodies:
            yield (await org.admin.call("POST", path, body)).label
    yield (await org.worker.call("POST", "/workers/register", bodies[org.number % len(bodies)])).label


@cache
def _heartbeat_of(value: bytes, size: int) -> bytes:
    return b'{"boot_id":"b","leases":[' + b",".join([value] * ((size - 30) // (len(value) + 1))) + b"]}"


async def large_json(org: Attack) -> AsyncIterator[str]:
    """Heartbeats with lists that are long and wrong: as long as is taken, a little less, and far more."""
    for size in (60 * 1024, 2 * MIB - 1024, 16 * MIB - 1024):
        for value in (b"{}", b"1"):
            body = _heartbeat_of(value, size)
            async for label in at_once(
                org.worker.call("POST", f"/workers/{org.worker_id}/heartbeat", body) for _ in range(4)
            ):
                yield label


async def large_headers(org: Attack) -> AsyncIterator[str]:
    """Hand-ins whose first line is a list that is long and wrong."""
    for value in (b"{}", b"1"):
        parts = b",".join([value] * ((4 * MIB - 100) // (len(value) + 1)))
        body = b'{"worker_id":"w","batch_id":"b","parts":[' + parts + b"]}\n"
        yield (await org.worker.call("POST", "/workers/results", body)).label


async def slow_bodies(org: Attack) -> AsyncIterator[str]:
    """Calls whose body has begun and does not go on, for a while: the org's other calls are refused meanwhile."""
    held: list[Connection] = []
    calls = (org.worker.open("POST", "/workers/x/bye", b"{", length=MIB) for _ in range(SLOW_UPLOADS))
    async for label in _held(held.append, calls):
        yield label
    for _, writer in held:
        writer.close()


ATTACKS: dict[str, tuple[Act, float]] = {
    "pools with absurd timings": (absurd_timings, 2.0),
    "webhook tests of a silent host": (webhook_tests, 15.0),
    "/readyz without a key": (readyz, 0.4),
    "samples with integers of 400 digits": (absurd_samples, 0.5),
    "batches that name 6,000 models": (many_models, 5.0),
    "claims of those": (claims, 1.0),
    "hand-ins of 200 MiB without a worker": (large_hand_ins, 20.0),
    "hand-ins with 10,000 unknown ends": (unknown_ends, 3.0),
    "500 event streams": (streams, ONCE),
    "downloads that stall": (stalled_downloads, ONCE),
    "uploads that do not go on": (slow_uploads, ONCE),
    "pools up to the quota": (pools, ONCE),
    "webhook endpoints up to the quota": (endpoints, ONCE),
    "files up to the quota": (files, ONCE),
    "batches up to the quota": (batches, ONCE),
    "another org's worker": (foreign_worker, 1.0),
    "other workers' leases": (foreign_leases, 2.0),
    "control work": (control_work, 5.0),
    "drains of another org's worker": (drains, 2.0),
    "deep and huge JSON": (deep_json, 3.0),
    "heartbeats of 2 MiB and of 16": (large_json, 2.0),
    "hand-ins with a header of 4 MiB": (large_headers, 3.0),
    "bodies that do not go on": (slow_bodies, ONCE),
}


def main() -> None:
    os.nice(19)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attack = Attack(Plan(**json.load(sys.stdin)))
    asyncio.run(attack.run({name: ATTACKS[name] for name in attack.plan.attacks}))
    print(json.dumps(attack.seen))  # noqa: T201 - the process that started this one reads it


if __name__ == "__main__":
    main()
