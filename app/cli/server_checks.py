"""What doctor asks the server, and where it does not answer, this machine's own server part.

The command line never opens the database: `/readyz` tells, else `python -m app.api check` in a process of its own.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any

import httpx

from app.cli import server_part
from app.cli.batch_text import CONTROL_WORK
from app.cli.connection import Address, no_api_behind
from app.cli.findings import Finding
from app.cli.printing import clean
from app.client.errors import PROXY_ALONE, Dismissed, error_of
from app.local.control_plane import http_client
from config.broker_url import masked
from config.settings import ServerSettings, load_with_origins

ASK_SECONDS = 5.0
LOCAL_SECONDS = 60.0
SKEW_SECONDS = 5.0
SWEEP_SECONDS = 60.0
"""No sweep runs for so long: beat or the control worker is away, unless its period was set longer."""
BATCHES = 50
"""So many of the newest batches are looked at."""
PARTS = {
    "database": "start the database, or mend GPUYARD_DATABASE_URL",
    "schema": "gpuyard migrate",
    "blobs": "mount the disk of GPUYARD_DATA_DIR/blobs, or make it writable for the server, with room on it",
}
HELD_BACK = "events"
DEGRADED = {
    HELD_BACK: "COMMIT or ROLLBACK it where it was begun, or as the database's admin: SELECT pg_terminate_backend(PID)"
}


def check_server(address: Address) -> Iterator[Finding]:
    """Ask the server how it is: itself, its parts, our key, its workers, its clock."""
    with http_client(address.url, key=address.key, timeout=ASK_SECONDS, proxy=address.proxy) as client:
        try:
            sent = time.time()
            answer = client.get("/readyz")
            took = time.time() - sent
        except httpx.HTTPError as error:
            why = clean(error) or type(error).__name__
            through = f" through the proxy {masked(address.proxy)}" if address.proxy else ""
            do = "start it (`gpuyard up`, or `gpuyard serve`), or mend GPUYARD_SERVER_URL"
            yield Finding("server", "red", f"{address.url} does not answer{through}: {why}", do)
            yield from check_own_server_part()
            return
        ready = _object(answer)
        if ready is None and answer.status_code in PROXY_ALONE:
            do = "start the API, or have the proxy look for it where it listens: by plain HTTP without GPUYARD_TLS_CERT"
            yield Finding("server", "red", no_api_behind(address.url, answer.status_code), do)
            yield from check_own_server_part()
            return
        if ready is None:
            do = "mend GPUYARD_SERVER_URL: it is the API's URL without /v1"
            yield Finding("server", "red", f"{address.url} answers, and is no gpuyard (HTTP {answer.status_code})", do)
            return
        yield Finding("server", "ok", f"{address.url} answers in {took * 1000:.0f} ms")
        yield from _parts(ready["parts"], _details(ready.get("degraded") or {}))
        yield _sweeps(ready.get("sweep_age_seconds") or {})
        yield from _rows(ready.get("unreadable_columns") or [])
        yield from _hanging_sweeps(ready.get("hanging_sweep_seconds") or {})
        yield from _key_and_workers(client, address)
        yield clock(answer.headers.get("date"), sent + took / 2)


def check_own_server_part() -> Iterator[Finding]:
    """Look at database, schema and blobs of an installation on this machine, when there is one."""
    why = _no_own_part()
    if why is not None:
        yield from (Finding(part, "warn", f"not looked at: the server does not answer, and {why}") for part in PARTS)
        return
    found = _own_part()
    if found is None:
        yield Finding("database", "red", "this machine's server part cannot be asked", "gpuyard migrate says why")
    else:
        yield from _parts(found["parts"], found.get("degraded") or {})


def _no_own_part() -> str | None:
    settings, origins = load_with_origins(ServerSettings)
    if not any(settings.data_dir.glob("gpuyard.db*")) and origins["database_url"] == "default":
        return "this machine has no database of its own"
    lacks = any(find_spec(module) is None for module in ("fastapi", "sqlmodel", "alembic"))
    return "this machine has no server part" if lacks else None


def _own_part() -> dict[str, Any] | None:
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            server_part.command("check"),
            env=server_part.environment(),
            capture_output=True,
            timeout=LOCAL_SECONDS,
            check=False,
        )
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("parts"), dict) else None


def _details(degraded: Mapping[str, str]) -> Mapping[str, str]:
    """Name who holds events back, which the server tells nobody who shows no key: the database's own machine may."""
    if HELD_BACK not in degraded or _no_own_part() is not None:
        return degraded
    return {**degraded, **((_own_part() or {}).get("degraded") or {})}


def _parts(parts: Mapping[str, str], degraded: Mapping[str, str]) -> Iterator[Finding]:
    for part, state in parts.items():
        if state == "ok":
            yield Finding(part, "ok", "can be used")
            continue
        what, do = _what_and_do(clean(state))
        text = f"{what}: {clean(degraded[part])}" if part in degraded else what
        yield Finding(part, "red", text, do or PARTS.get(part, "look at the server's log"))
    for part in sorted(degraded.keys() - parts.keys()):
        what, do = _what_and_do(clean(degraded[part]))
        yield Finding(part, "red", what, do or DEGRADED.get(part, "look at the server's log"))


def _what_and_do(state: str) -> tuple[str, str]:
    """Take apart what a part says of itself, `WHAT; WHAT TO DO: DETAILS`."""
    said, colon, details = state.partition(": ")
    what, _, do = said.partition("; ")
    return f"{what}{colon}{details}", do


def _sweeps(ages: Mapping[str, float]) -> Finding:
    # Retention runs every few minutes; the others tell whether anybody rings at all.
    youngest = min(ages.values(), default=None)
    if youngest is not None and youngest < SWEEP_SECONDS:
        return Finding("sweeps", "ok", f"the last one ran {youngest:.0f} s ago")
    text = "none has run yet" if youngest is None else f"none has run for {youngest:.0f} s"
    do = "start `celery -A app beat` and `celery -A app.celery_control worker -Q control`"
    return Finding("sweeps", "warn", text, do)


def _rows(columns: Iterable[str]) -> Iterator[Finding]:
    for name in columns:
        table, _, column = clean(name).partition(".")
        query = f"SELECT * FROM {table} WHERE NOT json_valid({column})"  # noqa: S608 - for a person to read
        do = f"find it in the database (SQLite: {query}) and repair it"
        yield Finding("rows", "warn", f"a row of {table} has a {column} that cannot be read; it is taken for empty", do)


def _hanging_sweeps(seconds: Mapping[str, float]) -> Iterator[Finding]:
    for name, since in seconds.items():
        text = f"a pass of {name} began {since:.0f} s ago and has not ended"
        do = "see whether the disk or file server of GPUYARD_DATA_DIR answers, and look at the control workers' log"
        yield Finding("sweeps", "red", text, do)


def _key_and_workers(client: httpx.Client, address: Address) -> Iterator[Finding]:
    try:
        answer = client.get("/v1/workers")
    except httpx.HTTPError as error:
        yield Finding("key", "warn", f"not looked at: {clean(error)}")
        return
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        do = "set GPUYARD_API_KEY to a key of this server; an admin makes one with `gpuyard token create NAME`"
        yield Finding("key", "red", f"the key from {address.key_from} is unknown or revoked", do)
        return
    yield Finding("key", "ok", f"the key from {address.key_from} is known")
    if answer.status_code == httpx.codes.OK:
        yield _workers(answer.json()["data"])
        yield from _batches(client)
        yield from _pools(client)
    else:
        why = error_of(answer)
        do = "set GPUYARD_API_KEY to a key that may" if isinstance(why, Dismissed) else "look at the server's log"
        yield Finding("workers", "warn", f"workers, batches and pools were not looked at: {clean(why.message)}", do)


def _batches(client: httpx.Client) -> Iterator[Finding]:
    """Name batches of the key's org with a damaged file, and those that cannot be validated or finalized."""
    try:
        answer = client.get("/v1/batches", params={"limit": BATCHES})
    except httpx.HTTPError:
        return
    if answer.status_code != httpx.codes.OK:
        return
    for batch in answer.json()["data"]:
        ours = batch.get("gpuyard") or {}
        if ours.get("damaged"):
            do = "restore it from a backup, then `gpuyard doctor --contents`; it lists all that is damaged"
            yield Finding("contents", "red", f"{batch['id']}: {clean(ours['damaged'])}", do)
        if ours.get("state") in CONTROL_WORK and ours.get("waiting_reason"):
            do = "bring back what it waits for; where the store is there, the batch ends without it after a few tries"
            yield Finding("contents", "warn", f"{batch['id']} waits: {clean(ours['waiting_reason'])}", do)


def _pools(client: httpx.Client) -> Iterator[Finding]:
    """Name the pools whose timing was stored before today's bounds."""
    try:
        answer = client.get("/v1/pools")
    except httpx.HTTPError as error:
        yield Finding("pools", "warn", f"not looked at: {clean(error)}")
        return
    for pool in answer.json()["data"] if answer.status_code == httpx.codes.OK else ():
        read = pool["timing"]
        wrong = [
            f"{name} {value} is read as {read[name]:g}" if name in read else f"{name} is ignored"
            for name, value in (pool.get("out_of_bounds") or {}).items()
        ]
        if wrong:
            rungs = ",".join(f"{name.removesuffix('_seconds')}={value:g}" for name, value in read.items())
            text = f"the timing of pool {pool['name']} is out of bounds: {', '.join(wrong)}"
            yield Finding("pools", "warn", clean(text), f"gpuyard pool set {pool['name']} --timing {rungs}")


def _workers(workers: list[dict[str, Any]]) -> Finding:
    able = [worker for worker in workers if worker["no_lease"] in {None, "nothing", "slots", "yield"}]
    if able:
        return Finding("workers", "ok", f"{len(able)} of {len(workers)} can take work")
    if not workers:
        return Finding("workers", "warn", "there is none", "start one: `celery -A app worker -Q gpu`, or `gpuyard up`")
    why = ", ".join(
        clean(f"{worker['name']}: {worker.get('no_lease_text') or worker['no_lease']}") for worker in workers[:3]
    )
    return Finding("workers", "warn", f"none of {len(workers)} takes work ({why})", "`gpuyard worker list` says why")


def clock(date: str | None, ours: float) -> Finding:
    """Compare the server's `Date` with our clock, `ours` in Unix seconds. It decides nothing: the database's does."""
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return Finding("clock", "warn", "the server does not say its time")
    skew = ours - theirs
    # The header has whole seconds.
    if -SKEW_SECONDS < skew < SKEW_SECONDS + 1:
        return Finding("clock", "ok", "as the server's")
    side = "ahead of" if skew > 0 else "behind"
    text = f"{abs(skew):.0f} s {side} the server's; leases go by the database's clock, logs and times shown do not"
    return Finding("clock", "warn", text, "let NTP set the clock")


def _object(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("parts"), dict) else None
