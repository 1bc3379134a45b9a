"""`gpuyard status`: pools, workers with why, batches with progress and the last events, once or live."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from app.cli.batch_text import CONTROL_WORK, has_ended
from app.cli.batches import newest
from app.cli.connection import server
from app.cli.errors import ExitCode
from app.cli.events import newest as newest_events
from app.cli.printing import Json, console, print_json
from app.cli.status_text import render
from app.cli.workers import AWAY, runtimes
from app.client.errors import TryLater
from app.client.public import PublicApi

BATCHES, EVENTS = 10, 8
LOOKED_AT = 50
"""So many of the newest batches are looked through for those that have not ended."""
Status = dict[str, Any]
Found = Mapping[str, Any]


def status(
    once: Annotated[bool, typer.Option("--once", help="Print it once; so it is off a terminal anyway.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 2.0,
    as_json: Json = False,
) -> None:
    """Show pools, workers and why they get nothing, batches with their progress, and what happened last.

    On a terminal it goes on until Ctrl-C. Exit code, once: 0, or 6 when something needs a person.
    """
    out = console()
    with server() as api:
        if as_json or once or not out.is_terminal:
            found = look(api)
            print_json(found) if as_json else out.print(render(found, width=out.width))
            raise typer.Exit(ExitCode.ATTENTION if found["attention"] else ExitCode.OK)
        with suppress(KeyboardInterrupt):
            follow(api, out, every)
    raise typer.Exit(ExitCode.INTERRUPTED)


def follow(api: PublicApi, out: Console, every: float) -> None:
    """Show it again and again. What was seen last stays while the server is away."""
    found = look(api)
    with Live(render(found, width=out.width), console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(render(found, width=out.width), refresh=True)
            time.sleep(every)
            try:
                found = look(api)
            except TryLater as error:
                found = {**found, "attention": [f"the server is away: {error.message}"]}


def look(api: PublicApi) -> Status:
    """Ask for everything."""
    pools = api.get("/v1/pools")["data"]
    workers = list(api.each("/v1/workers"))
    batches = newest(api, LOOKED_AT)
    running = [batch for batch in batches if not has_ended(batch)]
    ended = [batch for batch in batches if has_ended(batch)]
    shown = (running + ended)[: max(BATCHES, len(running))]
    last, _ = newest_events(api, EVENTS)
    return {
        "at": round(time.time(), 3),
        "attention": list(attention(workers, batches)),
        "pools": [_pool(pool, workers, running) for pool in pools],
        "workers": workers,
        "batches": shown,
        "events": last,
    }


def attention(workers: Sequence[Found], batches: Sequence[Found]) -> Iterator[str]:
    """Say what a person should look at: who is not heard of, what is down or damaged, what waits for nobody."""
    for worker in workers:
        if worker["state"] in AWAY:
            yield f"worker {worker['name']} is {worker['state']}"
        elif any(not runtime["alive"] for runtime in worker["runtimes"]):
            yield f"worker {worker['name']}: {runtimes(worker)}"
    ready = {worker["pool"] for worker in workers if worker["state"] not in AWAY}
    for batch in batches:
        ours = batch.get("gpuyard") or {}
        if ours.get("damaged"):
            yield f"{batch['id']}: {ours['damaged']}; see `gpuyard doctor --contents`"
        if has_ended(batch):
            continue
        if ours.get("waiting_reason") and (ours.get("pool") not in ready or ours.get("state") in CONTROL_WORK):
            yield f"{batch['id']} waits: {ours['waiting_reason']}"


def _pool(pool: Found, workers: Sequence[Found], running: Sequence[Found]) -> dict[str, Any]:
    """Give a pool with what is counted of it here; control workers are in none that anybody made."""
    mine = [worker for worker in workers if worker["pool"] == pool["name"]]
    batches = [ours for ours in ((batch.get("gpuyard") or {}) for batch in running) if ours.get("pool") == pool["name"]]
    return {
        "name": pool["name"],
        "default": pool["default"],
        "workers": len(mine),
        "ready": sum(worker["state"] == "active" for worker in mine),
        "slots": sum(worker["slots"]["batches"]["total"] for worker in mine),
        "free": sum(worker["slots"]["batches"]["free"] for worker in mine),
        "running": sum(bool(ours["workers"]) for ours in batches),
        "waiting": sum(not ours["workers"] for ours in batches),
    }
