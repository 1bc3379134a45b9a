"""`gpuyard config show`."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from config.reference import shown
from config.settings import ROLES, load_with_origins

app = typer.Typer(no_args_is_help=True, help="The settings of this machine.")


@app.callback()
def _group() -> None:
    """Keep `show` a subcommand: a group of one command would be the command itself."""


@app.command()
def show(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Print every setting with its value and where it came from; keys and passwords are masked."""
    rows = {name: (value, origin) for settings in ROLES.values() for name, value, origin in shown_of(settings)}
    if as_json:
        typer.echo(json.dumps({name: {"value": value, "from": origin} for name, (value, origin) in rows.items()}))
        return
    table = Table("setting", "value", "from")
    for name, (value, origin) in sorted(rows.items()):
        table.add_row(name, value, origin, style="dim" if origin == "default" else None)
    Console().print(table)


def shown_of(settings: type) -> tuple[tuple[str, str, str], ...]:
    """The rows of one role. Raises SettingsError."""
    return shown(*load_with_origins(settings))
