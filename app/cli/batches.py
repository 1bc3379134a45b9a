"""`gpuyard batch`: the batches of one's org."""

import time
import uuid
from itertools import islice
from typing import Annotated

import typer

from app.cli import batch_text, results
from app.cli.connection import server
from app.cli.errors import EXIT_CODES, CliError, ExitCode
from app.cli.figures import duration
from app.cli.printing import Json, JsonLines, Limit, print_fields, print_json, print_json_line, print_table, say
from app.cli.submit import (
    CanaryRows,
    Group,
    Metadata,
    Output,
    Priority,
    Unsupported,
    check_output,
    finish,
    pairs,
    why_rows_failed,
)
from app.cli.uploads import CREATE_SECONDS
from app.cli.watching import screen, watch
from app.client.public import PublicApi, path_to

PAGE = 100
RETRY_SECONDS = 600.0
"""The server reads the old input and writes the new one before it answers."""
app = typer.Typer(no_args_is_help=True, help="Batches: list, show, watch, cancel, results, errors, retry.")
BatchId = Annotated[str, typer.Argument(metavar="BATCH", help="Id of a batch.")]


@app.command("list")
def list_batches(
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List batches, newest first."""
    with server() as api:
        found = newest(api, limit)
    if as_json:
        print_json(found)
        return
    now = time.time()
    print_table(
        ("batch", "status", "rows>", "failed>", "age>", "note"),
        (
            (
                batch["id"],
                batch["status"],
                batch_text.rows(batch),
                batch["request_counts"]["failed"] or None,
                duration(now - batch["created_at"]),
                batch_text.note(batch),
            )
            for batch in found
        ),
        nothing="no batches: `gpuyard submit FILE` makes one",
        sentences=True,
    )


def newest(api: PublicApi, limit: int) -> list[batch_text.Batch]:
    """Read as many pages as it takes."""
    return list(islice(api.each("/v1/batches", limit=min(PAGE, limit)), limit))


@app.command()
def show(batch_id: BatchId, as_json: Json = False) -> None:
    """Show all there is to know of a batch: how it goes, why it waits, what was wrong."""
    with server() as api:
        batch = api.get(path_to("v1", "batches", batch_id))
        why = why_rows_failed(api, batch) if not as_json else []
    if as_json:
        print_json(batch)
        return
    print_fields(batch_text.fields(batch))
    for line in (*batch_text.errors(batch), *batch_text.reasons(why)):
        print_fields({"error": line})


@app.command("watch", help=f"Follow a batch to its end; --json prints the batch whenever it changed.\n\n{EXIT_CODES}")
def watch_batch(batch_id: BatchId, output: Output = None, as_json: JsonLines = False) -> None:
    """Follow a batch to its end."""
    if output is not None:
        check_output(output, None, as_json=as_json)
    with server() as api:
        if as_json:
            batch = watch(api, batch_id, Changes())
        else:
            with screen() as shown:
                batch = watch(api, batch_id, shown)
        finish(api, batch, output)
    raise typer.Exit(batch_text.exit_code(batch))


class Changes:
    """Prints a batch as a JSON line when it is not as it was."""

    def __init__(self) -> None:
        self._printed: object = None

    def __call__(self, batch: batch_text.Batch) -> None:
        """Look at it again."""
        if batch != self._printed:
            print_json_line(batch)
            self._printed = batch

    def away(self) -> None:
        """Print nothing: it has not changed as far as is known."""


@app.command()
def cancel(batch_id: BatchId, as_json: Json = False) -> None:
    """Cancel a batch. Rows that are finished keep their results."""
    with server() as api:
        batch = api.post(path_to("v1", "batches", batch_id, "cancel"))
    if as_json:
        print_json(batch)
        return
    typer.echo(f"{batch['id']} {batch['status']}")


@app.command("errors")
def show_errors(
    batch_id: BatchId,
    code: Annotated[
        str | None, typer.Option(help="Only failures of this code, or with this word in it, such as 429.")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, max=1000, help="Number of failed rows to list.")] = 20,
    as_json: Json = False,
) -> None:
    """Show why rows of a batch failed: the reasons, most frequent first, and the first of the rows."""
    with server() as api:
        found = api.get(path_to("v1", "batches", batch_id, "errors"), code=code, limit=limit)
        of_input = (
            [] if as_json or found["data"] else list(batch_text.errors(api.get(path_to("v1", "batches", batch_id))))
        )
    if as_json:
        print_json(found)
        return
    for line in of_input:  # its validation failed, and no row ran
        print_fields({"error": line})
    if of_input:
        return
    print_table(
        ("rows>", "code", "message"),
        ((top["count"], top["code"], top["message"]) for top in found["data"]),
        nothing="no row failed" if code is None else f"no row failed with {code}",
    )
    rows = found.get("failed") or []
    if rows:
        typer.echo()
        cells = ((row["custom_id"], row["code"], row["message"]) for row in rows)
        print_table(("custom_id", "code", "message"), cells, nothing="")
    if len(rows) < min(limit, sum(top["count"] for top in found["data"])):
        say(f"{len(rows)} rows can be listed here; the others are in `gpuyard batch results {batch_id}`")


@app.command()
def retry(
    batch_id: BatchId,
    failed: Annotated[bool, typer.Option("--failed", help="All rows without an answer. This is the default.")] = False,
    code: Annotated[
        list[str] | None, typer.Option(help="Rows that failed with this code; may be given several times.")
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Rows that the window's end left unrun.")] = False,
    every: Annotated[bool, typer.Option("--all", help="All rows, answered or not.")] = False,
    pool: Annotated[str | None, typer.Option(help="Pool to run in.")] = None,
    priority: Priority = None,
    group: Group = None,
    unsupported_parameters: Unsupported = None,
    canary_rows: CanaryRows = None,
    completion_window: Annotated[str | None, typer.Option(help="A number and s, m, h or d.")] = None,
    metadata: Metadata = None,
    as_json: Json = False,
) -> None:
    """Run rows of an ended batch again, as a new batch, and print its id.

    What is not said here is as it was for the first batch. `gpuyard batch results BATCH --with-retries` puts the
    results of both together.
    """
    if sum((failed, bool(code), expired, every)) > 1:
        raise typer.BadParameter("choose one of --failed, --code, --expired and --all")
    wanted = {
        "rows": "all" if every else "expired" if expired else None,
        "codes": code or None,
        "pool": pool,
        "priority": priority,
        "group": group,
        "unsupported_parameters": unsupported_parameters,
        "canary_rows": canary_rows,
        "completion_window": completion_window,
        "metadata": pairs(metadata or []) or None,
    }
    with server() as api:
        batch = api.post(
            path_to("v1", "batches", batch_id, "retry"),
            {key: value for key, value in wanted.items() if value is not None},
            headers={"idempotency-key": str(uuid.uuid4())},
            timeout_seconds=RETRY_SECONDS,
            deadline_seconds=CREATE_SECONDS,
        )
    print_json(batch) if as_json else typer.echo(batch["id"])


@app.command("results")
def show_results(
    batch_id: BatchId,
    output: Output = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the batch has ended.")] = False,
    with_retries: Annotated[
        bool, typer.Option("--with-retries", help="With the results of its retries that have ended.")
    ] = False,
    as_json: JsonLines = False,  # noqa: ARG001 - results are JSON lines with and without it
) -> None:
    """Print results, a JSON line a row.

    Of an ended batch: exactly one line for each input row, in input order, failures included. Of one that runs: what
    is stored so far, in the order stored; with --follow the rest as it comes, each row once. -o FILE writes the file
    whole or not at all, and with --follow at the batch's end.

    With --with-retries each row's line is its latest success, in the batch or in a retry of it (or of a retry), else
    its latest failure.
    """
    if output is not None:
        check_output(output, None, as_json=False)
    with server() as api:
        batch = api.get(path_to("v1", "batches", batch_id))
        if follow and output not in {None, results.STDOUT} and not batch_text.has_ended(batch):
            with screen() as shown:
                batch = watch(api, batch_id, shown)
        if batch_text.has_ended(batch) and not batch_text.has_results(batch):
            wrong = next(batch_text.errors(batch), "its input was refused")
            raise CliError(f"{batch_id} failed and has no results: {wrong}", exit_code=ExitCode.ENDED_BADLY)
        if batch_text.has_ended(batch):
            results.write_whole(api, batch, output or results.STDOUT, with_retries=with_retries)
            for unended in results.running_retries(api, batch) if with_retries else ():
                say(f"{unended} has not ended: its rows are not in these results yet")
            return
        with results.target(output or results.STDOUT, batch_id=batch_id) as out:
            stored = (line for line, _ in results.stored_so_far(api, batch_id))
            count = 0
            for line in results.follow(api, batch_id) if follow else stored:
                out.write(line)
                out.flush()
                count += 1
    if not follow:
        say(f"{batch_id} still runs: {count} of {batch['request_counts']['total']} rows so far, in the order stored")
