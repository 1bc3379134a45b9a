"""`gpuyard`: the commands, one file a group. A new one is named in app.cli.on_demand."""

import os
import sys
import traceback
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import CliError, ExitCode
from app.cli.on_demand import OnDemandGroup
from app.local.errors import BrokerError, FolderTaken, FolderUnusable, StackError
from app.os_errors import plainly
from config.errors import SettingsError

app = typer.Typer(cls=OnDemandGroup, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def version(asked: bool) -> None:
    """Print the version."""
    if asked:
        from importlib import metadata  # noqa: PLC0415 - it takes as long to import as all of typer

        with suppress(metadata.PackageNotFoundError):
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
    mend_standard_output()
    try:
        app(prog_name="gpuyard")
    except (CliError, SettingsError, BrokerError, FolderTaken, FolderUnusable, StackError) as error:
        fail(str(error), exit_code=getattr(error, "exit_code", 1))
    except UnicodeEncodeError as error:
        # Bytes that are no UTF-8 come in as what stands for them, and nothing is sent that holds one.
        fail(f"{error.object[:100]!r} is no text in UTF-8", exit_code=ExitCode.USAGE)
    except OSError as error:
        fail(plainly(error))
    except Exception as error:  # noqa: BLE001 - the user's last line of defence
        fail(f"{type(error).__name__}: {error}")


def mend_standard_output() -> None:
    """Have a command do its work where standard output or error is closed, or takes not every letter."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def fail(message: str, *, exit_code: int = 1) -> None:
    """Print one line and end the process."""
    if os.environ.get("GPUYARD_LOG_LEVEL") == "DEBUG":
        traceback.print_exc()
    typer.echo(f"gpuyard: {message}", err=True)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
