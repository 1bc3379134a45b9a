"""`gpuyard events`: what happened, as it was recorded with each change of a state."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from app.cli.connection import server
from app.cli.errors import ExitCode
from app.cli.figures import moment
from app.cli.printing import JsonLines, clean, print_json_line
from app.client.errors import TryLater
from app.client.public import PublicApi

PAGE = 1000
LOOK_SECONDS = 1.0


def events(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what happens, until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="So many of the last ones first.")] = 20,
    subject: Annotated[str | None, typer.Option(help="Of this batch, worker, token, … only, by its id.")] = None,
    after: Annotated[str | None, typer.Option(help="All that came after the event with this id.")] = None,
    as_json: JsonLines = False,
) -> None:
    """Print events, the oldest first."""
    show = print_json_line if as_json else _print
    with server() as api:
        first, cursor = newest(api, limit, subject=subject) if after is None else (_behind(api, after, subject), after)
        for event in first:
            show(event)
            cursor = event["id"]
        try:
            while follow:
                time.sleep(LOOK_SECONDS)
                with suppress(TryLater):  # it goes on where it was when the server is back
                    for event in _behind(api, cursor, subject):
                        show(event)
                        cursor = event["id"]
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def newest(api: PublicApi, count: int, *, subject: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
    """Give the last `count` events, the oldest first, and the cursor behind all there are."""
    found: list[dict[str, Any]] = []
    before = None
    while not found or len(found) < count:
        wanted = min(PAGE, max(1, count - len(found)))
        page = api.get("/v1/events", after=before, subject=subject, limit=wanted, order="desc")
        found += page["data"]
        if not page["has_more"] or not page["data"]:
            break
        before = page["data"][-1]["id"]
    return found[:count][::-1], found[0]["id"] if found else None


def _behind(api: PublicApi, after: str | None, subject: str | None) -> Iterator[dict[str, Any]]:
    while True:
        page = api.get("/v1/events", after=after, subject=subject, limit=PAGE)
        yield from page["data"]
        if not page["has_more"] or not page["data"]:
            return
        after = page["data"][-1]["id"]


def _print(event: Mapping[str, Any]) -> None:
    line = f"{moment(event['at'])}  {event['type']}  {event['subject']}  {event['actor']}  {details(event)}"
    typer.echo(clean(line).rstrip())


def details(event: Mapping[str, Any]) -> str:
    """Write what an event says beside its name."""
    return " ".join(f"{key}={_short(value)}" for key, value in event["data"].items())


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
