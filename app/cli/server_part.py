"""This machine's own server part, which a command starts as a program of its own and never imports."""

import os
import sys
from pathlib import Path

import app

_ROOT = str(Path(app.__file__).parents[1])


def command(*arguments: str) -> list[str]:
    """Return how `python -m app.api` is started."""
    return [sys.executable, "-m", "app.api", *arguments]


def environment() -> dict[str, str]:
    """Return our environment, where it finds the same `app` as we do."""
    path = os.pathsep.join(part for part in (_ROOT, os.environ.get("PYTHONPATH", "")) if part)
    return os.environ | {"PYTHONPATH": path}


def data_option(folder: Path | None) -> list[str]:
    """Return the option that names another data folder than the settings do."""
    return [] if folder is None else ["--data-dir", str(folder.absolute())]
