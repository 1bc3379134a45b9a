"""What doctor asks the server, and where it does not answer, this machine's own server part.

The command line never opens the database: `/readyz` tells, else `python -m app.api check` in a process of its own.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

import app
from app.cli.connection import Address, no_api_behind
from app.cli.findings import Finding
from app.cli.printing import clean
from app.client.errors import PROXY_ALONE
from app.local.control_plane import http_client
from config.broker_url import masked
from config.settings import ServerSettings, load_with_origins

ASK_SECONDS = 5.0
LOCAL_SECONDS = 60.0
SKEW_SECONDS = 5.0
SWEEP_SECONDS = 60.0
"""No sweep runs for so long: beat or the control worker is away, unless its period was set longer."""
PARTS = {
    "database": "start the database, or mend GPUYARD_DATABASE_URL",
    "schema": "gpuyard migrate",
    "blobs": "make GPUYARD_DATA_DIR writable for the server, with room on its disk",
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
    if not (settings.data_dir / "gpuyard.db").exists() and origins["database_url"] == "default":
        return "this machine has no database of its own"
    lacks = any(find_spec(module) is None for module in ("fastapi", "sqlmodel", "alembic"))
    return "this machine has no server part" if lacks else None


def _own_part() -> dict[str, Any] | None:
    root = str(Path(app.__file__).parents[1])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "app.api", "check"],
            env=os.environ | {"PYTHONPATH": path},
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
        text = f"{state}: {degraded[part]}" if part in degraded else state
        yield Finding(part, "red", clean(text), PARTS.get(part, "look at the server's log"))
    for part in sorted(degraded.keys() - parts.keys()):
        yield Finding(part, "red", clean(degraded[part]), DEGRADED.get(part, "look at the server's log"))


def _sweeps(ages: Mapping[str, float]) -> Finding:
    # Retention runs every few minutes; the others tell whether anybody rings at all.
    youngest = min(ages.values(), default=None)
    if youngest is not None and youngest < SWEEP_SECONDS:
        return Finding("sweeps", "ok", f"the last one ran {youngest:.0f} s ago")
    text = "none has run yet" if youngest is None else f"none has run for {youngest:.0f} s"
    do = "start `celery -A app beat` and `celery -A app.celery_control worker -Q control`"
    return Finding("sweeps", "warn", text, do)


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


def _workers(workers: list[dict[str, Any]]) -> Finding:
    able = [worker for worker in workers if worker["no_lease"] in {None, "nothing", "slots", "yield"}]
    if able:
        return Finding("workers", "ok", f"{len(able)} of {len(workers)} can take work")
    if not workers:
        return Finding("workers", "warn", "there is none", "start one: `celery -A app worker -Q gpu`, or `gpuyard up`")
    why = ", ".join(clean(f"{worker['name']}: {worker['no_lease']}") for worker in workers[:3])
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
