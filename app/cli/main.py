"""`gpuyard`: the commands, one file a group. A new command is imported and added here."""

import os
import sys
import traceback
from contextlib import suppress
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Annotated

import typer

from app.cli import batches, broker, config, models, pools, tokens, webhooks, workers
from app.cli.doctor import doctor
from app.cli.errors import CliError
from app.cli.events import events
from app.cli.serve import backup, migrate, restore, serve
from app.cli.status import status
from app.cli.submit import submit
from app.cli.up import up
from app.local.broker import BrokerError
from app.local.locks import FolderTaken
from app.local.stack import StackError
from config.sources import SettingsError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")
app.command()(up)
app.command()(serve)
app.command()(migrate)
app.command()(backup)
app.command()(restore)
app.command()(submit)
app.command()(status)
app.add_typer(batches.app, name="batch")
app.add_typer(workers.app, name="worker")
app.add_typer(pools.app, name="pool")
app.add_typer(broker.app, name="broker")
app.add_typer(tokens.app, name="token")
app.add_typer(tokens.orgs, name="org")
app.add_typer(webhooks.app, name="webhook")
app.command()(events)
app.command()(doctor)
app.add_typer(models.app, name="model")
app.add_typer(config.app, name="config")


def version(asked: bool) -> None:
    """Print the version."""
    if asked:
        with suppress(PackageNotFoundError):
            typer.echo(f"gpuyard {metadata.version('gpuyard')}")
            raise typer.Exit
        typer.echo("gpuyard unknown (run from a source tree)")
        raise typer.Exit


@app.callback()
def gpuyard(
    settings: Annotated[
        Path | None, typer.Option("--config", help="Settings file instead of /etc/gpuyard/ or ~/.config/gpuyard/.")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """OpenAI-style batches on pools of GPU machines that you own."""
    if settings is not None:
        os.environ["GPUYARD_CONFIG"] = str(settings.absolute())


def main() -> None:
    """Run a command. Errors are one line and an exit code; GPUYARD_LOG_LEVEL=DEBUG adds the traceback."""
    try:
        app(prog_name="gpuyard")
    except (CliError, SettingsError, BrokerError, FolderTaken, StackError) as error:
        fail(str(error), exit_code=getattr(error, "exit_code", 1))
    except Exception as error:  # noqa: BLE001 - the user's last line of defence
        fail(f"{type(error).__name__}: {error}")


def fail(message: str, *, exit_code: int = 1) -> None:
    """Print one line and end the process."""
    if os.environ.get("GPUYARD_LOG_LEVEL") == "DEBUG":
        traceback.print_exc()
    typer.echo(f"gpuyard: {message}", err=True)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
