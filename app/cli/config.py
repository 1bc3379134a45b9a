"""`gpuyard config show`."""

import typer

from app.cli.printing import Json, print_json, print_table
from config.reference import shown
from config.settings import ROLES, load_with_origins

app = typer.Typer(no_args_is_help=True, help="The settings of this machine.")


@app.callback()
def _group() -> None:
    """Keep `show` a subcommand: a group of one command would be the command itself."""


@app.command()
def show(as_json: Json = False) -> None:
    """Print every setting with its value and where it came from; keys and passwords are masked."""
    rows = {name: (value, origin) for settings in ROLES.values() for name, value, origin in shown_of(settings)}
    if as_json:
        print_json({name: {"value": value, "from": origin} for name, (value, origin) in rows.items()})
        return
    # The value last: that column is folded where the terminal is narrow, and never cut.
    table = ((name, origin, value) for name, (value, origin) in sorted(rows.items()))
    print_table(("setting", "from", "value"), table, nothing="no settings")


def shown_of(settings: type) -> tuple[tuple[str, str, str], ...]:
    """The rows of one role. Raises SettingsError."""
    return shown(*load_with_origins(settings))
