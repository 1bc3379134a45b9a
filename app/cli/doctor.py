"""`gpuyard doctor`: what works, what does not, and what to do about each thing that does not."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from app.cli.connection import find_server
from app.cli.content_checks import check_contents
from app.cli.errors import CliError, ExitCode
from app.cli.findings import Finding
from app.cli.machine_checks import check_app, check_broker, check_runtimes
from app.cli.printing import Json, clean, print_json
from app.cli.serve import Data
from app.cli.server_checks import check_own_server_part, check_server

COLOURS = {"ok": "green", "warn": "yellow", "red": "bold red"}


def doctor(
    contents: Annotated[
        bool,
        typer.Option("--contents", help="Read every stored content instead, and compare it with what was written."),
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Look at server, database, schema, blobs, workers, clock, broker, runtime, and whose `app` is imported.

    Each red line says what to do. Exit code: 0, or 1 when a line is red.
    """
    found = []
    for finding in check_contents(data) if contents else examine():
        found.append(finding)
        if not as_json:
            show(finding)
    healthy = all(finding.level != "red" for finding in found)
    if as_json:
        print_json({"healthy": healthy, "findings": [asdict(finding) for finding in found]})
    raise typer.Exit(ExitCode.OK if healthy else ExitCode.ERROR)


def examine() -> Iterator[Finding]:
    """Look at one part after the other. Raises SettingsError: without settings there is nothing to look at."""
    yield check_app(Path.cwd())
    try:
        address = find_server()
    except CliError as error:
        yield Finding("server", "red", str(error), "set the two, or start `gpuyard up`")
        yield from check_own_server_part()
    else:
        yield from check_server(address)
    yield check_broker()
    yield from check_runtimes()


def show(finding: Finding) -> None:
    """Print a line, with what to do on the next one."""
    out = Console(highlight=False, emoji=False, soft_wrap=True)
    line = Text(f"{finding.level:<4}", style=COLOURS[finding.level])
    out.print(line.append(f"  {finding.part:<8}  {clean(finding.text)}", style="default"))
    if finding.do:
        out.print(Text(f"{'':16}-> {clean(finding.do)}"))
