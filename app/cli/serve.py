"""`gpuyard serve` and `gpuyard migrate`: the control side's own program, in this process's place (DESIGN 3)."""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import app
from app.cli.errors import require_extra
from app.cli.printing import Json

_ROOT = str(Path(app.__file__).parents[1])


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


def migrate(as_json: Json = False) -> None:
    """Bring the database's schema to this version."""
    _become("migrate", *(["--json"] if as_json else []))


def _become(*arguments: str) -> NoReturn:
    require_extra("server", "fastapi", "uvicorn", "sqlmodel", "alembic")
    path = os.pathsep.join(part for part in (_ROOT, os.environ.get("PYTHONPATH", "")) if part)
    os.execve(sys.executable, [sys.executable, "-m", "app.api", *arguments], os.environ | {"PYTHONPATH": path})  # noqa: S606 - our own program, no shell
