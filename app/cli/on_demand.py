"""Commands that are imported when they are asked for: the others' imports were a third of each command's time."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from app.interrupts import ends_at_once

COMMANDS = {
    "up": "up:up",
    "serve": "serve:serve",
    "migrate": "serve:migrate",
    "backup": "serve:backup",
    "restore": "serve:restore",
    "submit": "submit:submit",
    "status": "status:status",
    "events": "events:events",
    "doctor": "doctor:doctor",
    "batch": "batches:app",
    "worker": "workers:app",
    "pool": "pools:app",
    "broker": "broker:app",
    "token": "tokens:app",
    "org": "tokens:orgs",
    "webhook": "webhooks:app",
    "model": "models:app",
    "config": "config:app",
}
"""Each command's file in this folder, and its name there, in the order of `gpuyard --help`."""


class OnDemandGroup(TyperGroup):
    """The commands of COMMANDS; `--help`, which shows a line of each, imports them all."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _OnDemand()  # type: ignore[assignment]  # typer reads it and never writes


class _OnDemand(Mapping[str, Any]):
    """Commands by name, each imported when it is first looked at."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = _load(name, COMMANDS[name])
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _load(name: str, where: str) -> Any:
    """Import a command, or a group of commands, and give it as typer runs it."""
    module, _, attribute = where.partition(":")
    with ends_at_once():
        found = getattr(import_module(f"app.cli.{module}"), attribute)
    above = typer.Typer(rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        above.add_typer(found, name=name)
    else:
        above.command(name)(found)
    return typer.main.get_group(above).commands[name]
