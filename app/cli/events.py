"""`gpuyard events`: what happened, as it was recorded with each change of a state."""

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
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
        last, cursor = tail(api, None if after else limit, subject=subject, after=after)
        for event in last:
            show(event)
        try:
            while follow:
                time.sleep(LOOK_SECONDS)
                cursor = _look(api, cursor, subject, show)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def tail(
    api: PublicApi, count: int | None, *, subject: str | None, after: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Give the last `count` events behind a cursor (None: all of them), and the cursor behind the last."""
    last: deque[dict[str, Any]] = deque(maxlen=count)
    cursor = after
    for event in _behind(api, after, subject):
        last.append(event)
        cursor = event["id"]
    return list(last), cursor


def _look(api: PublicApi, cursor: str | None, subject: str | None, show: Any) -> str | None:
    try:
        for event in _behind(api, cursor, subject):
            show(event)
            cursor = event["id"]
    except TryLater:
        # It goes on where it was when the server is back.
        pass
    return cursor


def _behind(api: PublicApi, after: str | None, subject: str | None) -> Iterator[dict[str, Any]]:
    while True:
        page = api.get("/v1/events", after=after, subject=subject, limit=PAGE)
        yield from page["data"]
        if not page["has_more"] or not page["data"]:
            return
        after = page["data"][-1]["id"]


def _print(event: Mapping[str, Any]) -> None:
    data = " ".join(f"{key}={_short(value)}" for key, value in event["data"].items())
    typer.echo(clean(f"{moment(event['at'])}  {event['type']}  {event['subject']}  {event['actor']}  {data}").rstrip())


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
