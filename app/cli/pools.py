"""`gpuyard pool`: what each worker of a pool may take, and when it takes nothing (PL-01, PL-02)."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from app.cli.connection import server
from app.cli.printing import Json, print_fields, print_json, print_table
from app.client.public import path_to

app = typer.Typer(no_args_is_help=True, help="Pools: list, create, set.")
NONE = "none"
Slots = Annotated[
    list[str] | None,
    typer.Option("--slots", metavar="CLASS=N", help="Jobs at once on each worker: batches=2."),
]
MaxLoad = Annotated[
    str | None,
    typer.Option(help="Above this load per CPU a worker takes nothing; `none` takes the bound away."),
]
MinMemory = Annotated[str | None, typer.Option(help="Below so many GB of free memory, too; `none` takes it away.")]
MaxLosses = Annotated[str | None, typer.Option(help="Lost workers a job survives; `none`: as the server has it.")]
Timing = Annotated[
    list[str] | None,
    typer.Option("--timing", metavar="KEY=SECONDS", help="renew=, grace= and toleration=, all three, or `none`."),
]
RUNGS = ("renew", "grace", "toleration")


@app.command("list")
def list_pools(as_json: Json = False) -> None:
    """List the pools you may use. `*` marks the default pool."""
    with server() as api:
        found = api.get("/v1/pools")["data"]
    if as_json:
        print_json(found)
        return
    print_table(
        ("pool", "slots", "max load>", "min memory>", "max losses>", "timing"),
        (
            (
                pool["name"] + ("*" if pool["default"] else ""),
                _slots(pool),
                pool["max_load"],
                None if pool["min_memory_gb"] is None else f"{pool['min_memory_gb']:g} GB",
                pool["max_losses"],
                _timing(pool),
            )
            for pool in found
        ),
        nothing="no pools: `gpuyard pool create NAME` makes one",
    )


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and hyphens: it names a queue, too.")],
    private: Annotated[bool, typer.Option("--private", help="For your own org only.")] = False,
    slots: Slots = None,
    max_load: MaxLoad = None,
    min_memory_gb: MinMemory = None,
    max_losses: MaxLosses = None,
    timing: Timing = None,
    as_json: Json = False,
) -> None:
    """Make a pool. Shared ones are the operator's to make."""
    body = {"name": name, "shared": not private, **changes(slots, max_load, min_memory_gb, max_losses, timing)}
    with server() as api:
        shown(api.post("/v1/pools", body), as_json=as_json)


@app.command("set")
def set_pool(
    name: Annotated[str, typer.Argument(help="A pool.")],
    slots: Slots = None,
    max_load: MaxLoad = None,
    min_memory_gb: MinMemory = None,
    max_losses: MaxLosses = None,
    timing: Timing = None,
    as_json: Json = False,
) -> None:
    """Change a pool; what is not named stays as it is. Its workers follow at their next heartbeats."""
    body = changes(slots, max_load, min_memory_gb, max_losses, timing)
    if not body:
        raise typer.BadParameter("name something to change, such as --max-load 0.8")
    with server() as api:
        shown(api.patch(path_to("v1", "pools", name), body), as_json=as_json)


def changes(
    slots: list[str] | None,
    max_load: str | None,
    min_memory_gb: str | None,
    max_losses: str | None,
    timing: list[str] | None,
) -> dict[str, Any]:
    """Put the options that were given on the wire. Raises typer.BadParameter."""
    found: dict[str, Any] = {}
    if slots:
        found["slots"] = {name: _whole(count, "--slots") for name, count in _parts(slots)}
    for key, text in (("max_load", max_load), ("min_memory_gb", min_memory_gb)):
        if text is not None:
            found[key] = None if text == NONE else _number(text, f"--{key.replace('_', '-')}")
    if max_losses is not None:
        found["max_losses"] = None if max_losses == NONE else _whole(max_losses, "--max-losses")
    if timing == [NONE]:
        found["timing"] = None
    elif timing:
        rungs = {name: _number(seconds, "--timing") for name, seconds in _parts(timing)}
        if set(rungs) != set(RUNGS):
            raise typer.BadParameter("give renew=, grace= and toleration=, all three", param_hint="--timing")
        found["timing"] = {f"{name}_seconds": seconds for name, seconds in rungs.items()}
    return found


def shown(pool: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a pool."""
    if as_json:
        print_json(pool)
        return
    print_fields(
        {
            "pool": pool["name"],
            "default": "yes" if pool["default"] else None,
            "shared": "yes" if pool["shared"] else "no",
            "slots": _slots(pool),
            "max load": pool["max_load"],
            "min memory": None if pool["min_memory_gb"] is None else f"{pool['min_memory_gb']:g} GB",
            "max losses": pool["max_losses"],
            "timing": _timing(pool),
        }
    )


def _slots(pool: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{name}={count}" for name, count in pool["slots"].items()) or None


def _timing(pool: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{key.removesuffix('_seconds')}={value:g}" for key, value in pool["timing"].items()) or None


def _parts(given: list[str]) -> Iterator[tuple[str, str]]:
    for text in (part for each in given for part in each.split(",")):
        name, _, value = text.partition("=")
        yield name.strip(), value


def _number(text: str, option: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise typer.BadParameter(f"{text!r} is no number", param_hint=option)
    return found


def _whole(text: str, option: str) -> int:
    """Read a count: half of a job is no job, and must not become none in silence."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no whole number", param_hint=option) from None
