"""`gpuyard submit`: send a file, make a batch of it, and see it through when asked to."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.cli import batch_text, results
from app.cli.connection import server
from app.cli.errors import EXIT_CODES
from app.cli.inputs import STDIN, open_input
from app.cli.printing import Json, print_json, say
from app.cli.uploads import submit_input
from app.cli.watching import screen, watch
from app.client.errors import ControlPlaneError
from app.client.public import PublicApi, path_to

SHOWN_REASONS = 5
Output = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the results here, whole or not at all.")
]
Priority = Annotated[int | None, typer.Option(min=0, max=9, help="9 goes first; 0 is the default.")]
Group = Annotated[str | None, typer.Option(help="Batches of one group share their turn fairly with others.")]
Unsupported = Annotated[
    Literal["fail", "drop"] | None, typer.Option(help="What becomes of parameters that no worker takes.")
]
CanaryRows = Annotated[
    int | None,
    typer.Option(min=0, help="So many rows run first on each worker; when all fail alike, no more. 0: run all."),
]
Metadata = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be given several times.")]


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines, as OpenAI's batch API reads them.")],
    endpoint: Annotated[str | None, typer.Option(help="Default: the url of the first row.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool to run in. Default: the server's default pool.")] = None,
    priority: Priority = None,
    group: Group = None,
    unsupported_parameters: Unsupported = None,
    canary_rows: CanaryRows = None,
    completion_window: Annotated[str, typer.Option(help="Then it expires: a number and s, m, h or d.")] = "24h",
    metadata: Metadata = None,
    watch_it: Annotated[bool, typer.Option("--watch", help="Follow the batch to its end.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Send a file of rows as a batch and print the batch's id.

    With --watch or -o the command follows the batch to its end. The file of -o has exactly one line for each input
    row, in input order, failures included; Ctrl-C leaves the batch running.
    """
    arguments = {
        "pool": pool,
        "priority": priority,
        "group": group,
        "unsupported_parameters": unsupported_parameters,
        "canary_rows": canary_rows,
        "completion_window": completion_window,
        "metadata": pairs(metadata or []) or None,
    }
    if output is not None:
        check_output(output, file, as_json=as_json)
    with open_input(file) as rows, server() as api:
        arguments["endpoint"] = endpoint or rows.endpoint()
        batch = submit_input(api, rows, arguments)
        if not watch_it and output is None:
            print_json(batch) if as_json else typer.echo(batch["id"])
            return
        say(f"{batch['id']} is submitted")
        see_through(api, batch["id"], output, as_json=as_json)


submit.__doc__ = f"{submit.__doc__}\n\n    {EXIT_CODES}"


def see_through(api: PublicApi, batch_id: str, output: str | None, *, as_json: bool) -> None:
    """Follow a batch to its end, write its results, and exit with what became of it."""
    with screen() as show:
        batch = watch(api, batch_id, show)
    finish(api, batch, output)
    if as_json:
        print_json(batch)
    raise typer.Exit(batch_text.exit_code(batch))


def finish(api: PublicApi, batch: dict[str, Any], output: str | None) -> None:
    """Say how a batch ended and why rows failed, and write its results when it has any."""
    say(batch_text.ending(batch))
    for line in (*batch_text.errors(batch), *batch_text.reasons(why_rows_failed(api, batch))):
        say(f"  {line}")
    if batch_text.unanswered(batch):
        say(f"list these rows: gpuyard batch errors {batch['id']}")
        say(f"run them again:  gpuyard batch retry {batch['id']}")
    if output is None:
        return
    if not batch_text.has_results(batch):
        say(f"{output} is not written: nothing of this batch ran")
        return
    lines = results.write_whole(api, batch, output)
    if output != results.STDOUT:
        say(f"{output}: {lines} lines")


def why_rows_failed(api: PublicApi, batch: dict[str, Any]) -> list[dict[str, Any]]:
    """Return why most rows of a batch failed: those that the runtime refused, too, while it runs."""
    found: list[dict[str, Any]] = batch_text.ours(batch).get("top_errors") or []
    if batch_text.unanswered(batch):
        with suppress(ControlPlaneError):  # the error file may be gone
            found = api.get(path_to("v1", "batches", batch["id"], "errors"))["data"] or found
    return found[:SHOWN_REASONS]


def pairs(given: list[str]) -> dict[str, str]:
    """Read KEY=VALUE. Raises typer.BadParameter."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--metadata")
        found[key] = value
    return found


def check_output(output: str, file: str | None, *, as_json: bool) -> None:
    """Refuse before any work what could not be written. Raises typer.BadParameter, CliError."""
    if output == results.STDOUT and as_json:
        raise typer.BadParameter("--json and -o - both want standard output", param_hint="-o")
    if file not in {None, STDIN} and _same(str(file), output):
        raise typer.BadParameter("it is the input file", param_hint="-o")
    results.check_target(output)


def _same(one: str, other: str) -> bool:
    try:
        return Path(other).samefile(one)
    except OSError:
        return False
