"""Sending an input and making a batch of it."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from app.cli.inputs import Input
from app.client.errors import ControlPlaneError
from app.client.http import json_bytes
from app.client.public import PublicApi, path_to

CREATE_SECONDS = 30.0
"""A create without an answer is sent again for so long: its key makes it the same batch."""


def submit_input(api: PublicApi, rows: Input, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Upload `rows` and make the batch that `arguments` describe; gives the batch.

    Raises app.client.errors; an upload whose batch is refused is deleted again.
    """
    json_bytes(arguments)  # words that are no text are found before anything is sent
    name = PurePath(rows.name).name if rows.size is not None else "rows.jsonl"
    name = name.encode(errors="replace").decode()  # a name of other bytes than UTF-8's goes as what is left of it
    with _progress(rows):
        sent = {"file": (name, rows.body())}
        # Standard input is read once; a file is read from its beginning by each try.
        file = api.post("/v1/files", data={"purpose": "batch"}, files=sent, once_only=rows.size is None)
    try:
        batch: dict[str, Any] = api.post(
            "/v1/batches",
            {"input_file_id": file["id"], **{key: value for key, value in arguments.items() if value is not None}},
            headers={"idempotency-key": str(uuid.uuid4())},
            deadline_seconds=CREATE_SECONDS,
        )
    except ControlPlaneError:
        with suppress(ControlPlaneError):
            api.delete(path_to("v1", "files", file["id"]))
        raise
    return batch


@contextmanager
def _progress(rows: Input) -> Iterator[None]:
    """Show on a terminal how much is sent."""
    screen = Console(stderr=True)
    columns = (TextColumn("sending"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("sending", total=rows.size)
        rows.sent = lambda count: progress.advance(task, count)
        yield
