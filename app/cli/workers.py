"""`gpuyard worker`: the workers, what they have to give, why one gets no lease (PL-06, PL-07), what to ask of one."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.connection import server
from app.cli.errors import CliError
from app.cli.figures import duration, moment, size
from app.cli.printing import Json, clean, print_fields, print_json, print_table
from app.cli.work import work
from app.client.public import path_to

app = typer.Typer(no_args_is_help=True, invoke_without_command=True)
app.callback()(work)
WAIT_SECONDS = 1.0
AWAY = frozenset({"unreachable", "stale", "offline"})
Which = Annotated[str, typer.Argument(metavar="WORKER", help="Id or name of a worker.")]
NO_LEASE = {
    "slots": "all its slots are taken",
    "nothing": "nothing waits that it could run",
    "load": "its host is busier than the pool's max_load allows",
    "memory": "its host has less memory free than the pool's min_memory_gb",
    "disk": "it cannot write to its state_dir: free its disk",
    "phase": "it is not ready yet, or not any more",
    "draining": "it finishes what it has and leaves",
    "limit": "a limit of the pool is reached",
    "unreachable": "it has not been heard of within the grace",
    "yield": "other work goes first",
    "unstarted": "it could not start its last jobs: see its log",
}
"""The words of a claim's no (DESIGN 7) as sentences."""


@app.command("list")
def list_workers(
    pool: Annotated[str | None, typer.Option(help="Of this pool only.")] = None,
    gone: Annotated[bool, typer.Option("--gone", help="Those that have left, too.")] = False,
    as_json: Json = False,
) -> None:
    """List workers. Load is per CPU, memory and disk are what is free, slots are free/all, `no lease` says why not.

    `runtimes` says how many of them are up, and why one is not.
    """
    with server() as api:
        found = list(api.each("/v1/workers", pool=pool, gone=gone or None))
    if as_json:
        print_json(found)
        return
    classes = list(dict.fromkeys(name for worker in found for name in worker["slots"]))
    print_table(
        (
            "worker",
            "pool",
            "state",
            "seen>",
            "load>",
            "memory>",
            "disk>",
            *(f"{name}>" for name in classes),
            "no lease",
            "runtimes",
        ),
        (
            (
                worker["name"],
                worker["pool"],
                _state(worker),
                duration(worker["seen_seconds"]),
                _load(worker),
                size(worker["memory_available"]),
                size(worker["disk_free"]),
                *(slots(worker, name) for name in classes),
                worker["no_lease"],
                runtimes(worker),
            )
            for worker in found
        ),
        nothing="no workers: `celery -A app worker -Q gpu` starts one, `gpuyard up` starts everything on this machine",
    )


@app.command()
def show(worker: Which, as_json: Json = False) -> None:
    """Show a worker: its host, its runtimes and their models, and why it gets no lease."""
    with server() as api:
        found = api.get(path_to("v1", "workers", worker))
    if as_json:
        print_json(found)
        return
    print_fields(fields(found))
    for gpu in found["gpus"]:
        print_fields({f"gpu {gpu['index']}": gpu_text(gpu)})
    for runtime in found["runtimes"]:
        print_fields(runtime_fields(runtime))
    for pull in found["pulls"]:
        print_fields({"model": pulled(pull)})


@app.command()
def drain(
    worker: Which,
    wait: Annotated[bool, typer.Option("--wait", help="Give back control when it has left.")] = False,
    timeout: Annotated[float | None, typer.Option(help="With --wait: seconds; then exit 1.")] = None,
    as_json: Json = False,
) -> None:
    """Have a worker finish what it has and leave.

    Its rows in flight get its `drain_seconds`; the rest goes to others. It hears of it with its next heartbeat or poll.
    """
    with server() as api:
        asked = api.post(path_to("v1", "workers", worker, "drain"))
        until = None if timeout is None else time.monotonic() + timeout
        while wait and asked["state"] != "gone":
            if asked["state"] in AWAY:
                raise CliError(f"{asked['name']} is {asked['state']}: it leaves when it is heard of again")
            if until is not None and time.monotonic() >= until:
                raise CliError(f"{asked['name']} has not left within {timeout:g} s: {_state(asked)}")
            time.sleep(WAIT_SECONDS)
            asked = api.get(path_to("v1", "workers", asked["id"]))
    _say(asked, "has left" if asked["state"] == "gone" else "was asked to leave", as_json=as_json)


@app.command()
def reset(worker: Which, as_json: Json = False) -> None:
    """Have a worker that waits after failed calls try again at once."""
    with server() as api:
        asked = api.post(path_to("v1", "workers", worker, "reset"))
    _say(asked, "was asked to try again at once", as_json=as_json)


def _say(worker: Mapping[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(worker)
    else:
        typer.echo(f"{clean(worker['name'])} {what}")


def fields(worker: Mapping[str, Any]) -> dict[str, object]:
    """Give what there is to show of a worker but its GPUs and runtimes."""
    why = worker["no_lease"]
    return {
        "worker": worker["name"],
        "id": worker["id"],
        "pool": worker["pool"],
        "state": _state(worker),
        "phase": worker["phase"],
        "activity": worker["activity"],
        "no lease": f"{why}: {why_no_lease(worker)}" if why in NO_LEASE else why,
        "seen": f"{duration(worker['seen_seconds'])} ago",
        "slots": ", ".join(f"{slots(worker, name)} {name} free" for name in worker["slots"]),
        "prompts": worker["max_concurrent_prompts"],
        "jobs": worker["current_invocations"],
        "host": worker["hostname"],
        "load": _load(worker),
        "memory": _of(worker["memory_available"], worker["memory_total"]),
        "disk": size(worker["disk_free"]),
        "transport": worker["transport"],
        "driver": worker["driver"],
        "gpus": worker["gpu_error"],
        "tags": ", ".join(worker["tags"]) or None,
        "versions": ", ".join(f"{name} {version}" for name, version in worker["versions"].items()) or None,
        "since": moment(worker["created_at"]),
    }


def why_no_lease(worker: Mapping[str, Any]) -> str | None:
    """Say why a worker gets no lease, with what it says itself."""
    why = worker["no_lease"]
    text = NO_LEASE.get(why, why)
    return f"{text}; {said}" if (said := worker.get("no_lease_text")) else text


def gpu_text(gpu: Mapping[str, Any]) -> str:
    """Say what a GPU is, and how much of it is in use as far as it tells."""
    parts = (
        f"{size(gpu['memory_used'])} of {size(gpu['memory_total'])} used" if gpu["memory_total"] is not None else "",
        f"{gpu['utilization']:.0f} % busy" if gpu["utilization"] is not None else "",
        gpu["error"] or "",
    )
    known = ", ".join(part for part in parts if part)
    return f"{gpu['name']}: {known}" if known else str(gpu["name"])


def runtime_fields(runtime: Mapping[str, Any]) -> dict[str, object]:
    """Give what there is to show of a runtime."""
    reason = runtime.get("reason") or ("" if runtime["alive"] else "no answer")
    state = ("alive" if runtime["alive"] else "not alive") + (f": {reason}" if reason else "")
    return {
        "runtime": f"{runtime['name']}: {state}",
        "models": ", ".join(runtime["models"]) or "none",
        "fetches": "models that a batch asks for and it lacks" if runtime.get("pulls") else None,
    }


def runtimes(worker: Mapping[str, Any]) -> str:
    """Say how many of a worker's runtimes are up, and what is wrong with the first that is not, or fails."""
    found = worker["runtimes"]
    down = [runtime for runtime in found if not runtime["alive"]]
    ill = [*down, *(runtime for runtime in found if runtime.get("reason"))]
    up = f"{len(found) - len(down)}/{len(found)} up"
    return f"{up}, {ill[0]['name']}: {ill[0].get('reason') or 'no answer'}" if ill else up


def pulled(pull: Mapping[str, Any]) -> str:
    """Say how a pull stands."""
    of_all = f" of {size(pull['total'])}" if pull["total"] else ""
    so_far = f"{size(pull['completed'])}{of_all}"
    words = {
        "pulling": f"is being fetched, {so_far}",
        "pulled": f"was fetched{', ' + str(size(pull['total'])) if pull['total'] else ''}",
        "failed": f"could not be fetched: {pull['error'] or 'the runtime does not say why'}",
        "cancelled": f"is not needed any more, stopped at {so_far}",
    }
    return f"{pull['model']} {words.get(pull['status'], pull['status'])} ({pull['runtime']})"


def slots(worker: Mapping[str, Any], name: str) -> str | None:
    """Write a class's free slots and all of them."""
    found = worker["slots"].get(name)
    return f"{found['free']}/{found['total']}" if found else None


def _state(worker: Mapping[str, Any]) -> str:
    """Write the state; one that was asked to leave and does not say so yet is shown as such."""
    asked = worker.get("drain_requested_at") is not None and worker["state"] not in {"draining", "gone"}
    return f"{worker['state']}, to drain" if asked else str(worker["state"])


def _load(worker: Mapping[str, Any]) -> str | None:
    load = worker["load_per_cpu"]
    return None if load is None else f"{load:.2f}"


def _of(free: float | None, total: float | None) -> str | None:
    return f"{size(free)} of {size(total)} free" if free is not None and total is not None else size(free)
