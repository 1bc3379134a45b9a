"""`gpuyard serve`, `migrate`, `backup`, `restore`: the control side's own program, in this one's place (DESIGN 3)."""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from app.cli import server_part
from app.cli.errors import require_extra
from app.cli.printing import Json
from app.cli.server_part import data_option

Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of database, blobs and keys, as with `gpuyard up --data`.")
]


def serve(
    init: Annotated[
        bool, typer.Option("--init", help="Make the first admin key, if there is none; printed once.")
    ] = False,
    migrate_first: Annotated[
        bool, typer.Option("--migrate", help="Bring the database's schema to this version first.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 = a free one.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key (PEM).")] = None,
) -> None:
    """Run the API."""
    options = {"--host": host, "--port": port, "--tls-cert": tls_cert, "--tls-key": tls_key}
    arguments = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    flags = [flag for flag, asked in (("--init", init), ("--migrate", migrate_first)) if asked]
    _become("serve", *flags, *arguments)


def migrate(
    restored: Annotated[
        bool,
        typer.Option("--restored", help="The database was put back by other means than `gpuyard restore`."),
    ] = False,
    new_database: Annotated[
        bool,
        typer.Option("--new-database", help="Begin an empty SQLite database where there was one and its file is gone."),
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Bring the database's schema to this version."""
    options = {"--restored": restored, "--new-database": new_database, "--json": as_json}
    _become("migrate", *(name for name, asked in options.items() if asked), *data_option(data))


def backup(
    folder: Annotated[Path, typer.Argument(help="New, empty, or an earlier backup: then only what is new is copied.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copy database, contents and keys into a folder, while everything runs."""
    _become("backup", str(folder.absolute()), *data_option(data), *(["--json"] if as_json else []))


def restore(
    folder: Annotated[Path, typer.Argument(help="A backup.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Fill an empty installation with a backup."""
    _become("restore", str(folder.absolute()), *data_option(data), *(["--json"] if as_json else []))


def _become(*arguments: str) -> NoReturn:
    require_extra("server", "fastapi", "uvicorn", "sqlmodel", "alembic")
    os.execve(sys.executable, server_part.command(*arguments), server_part.environment())  # noqa: S606 - our own program, no shell
