"""The layers settings come from, highest first. An unknown name in the file or the environment is an error."""

import difflib
import json
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource

from config import places
from config.errors import SettingsError

PREFIX = "GPUYARD_"
LOCAL = "gpuyard up"
"""How the origin begins of what a local `gpuyard up` left."""
# Set for the child of a run, or read before the settings are, or by one command: no setting, and no mistake either.
RESERVED = frozenset(
    {
        "GPUYARD_BROKER_ADMIN_URL",
        "GPUYARD_CONFIG",
        "GPUYARD_HOST_KEY",
        "GPUYARD_INVOCATION_ID",
        "GPUYARD_PARENT_INVOCATION_ID",
        "GPUYARD_ROOT_INVOCATION_ID",
        "GPUYARD_WORKDIR",
    }
)


@dataclass(frozen=True)
class Layer:
    """Values of one source, by field name, already reduced to the fields of the role."""

    origin: str
    values: Mapping[str, Any]


def layers(
    role: type[BaseSettings], *, cli: Mapping[str, Any], config: Path | None, known: Collection[str]
) -> tuple[Layer, ...]:
    """All sources of a role, highest first.

    Raises SettingsError for an unknown name, an unreadable file, and a `config` that does not exist.
    """
    _refuse_unknown(cli, known, "command line")
    found = [
        Layer("command line", {name: value for name, value in cli.items() if value is not None}),
        _environment(role, known),
    ]
    path = _file(config)
    if path is not None:
        found.append(Layer(str(path), _read_file(path, known)))
    if {"server_url", "api_key"} <= role.model_fields.keys() and "runtime" not in role.model_fields:
        found.append(_local_server(found))
    return tuple(
        Layer(layer.origin, {name: value for name, value in layer.values.items() if name in role.model_fields})
        for layer in found
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean …?` for a mistyped name, or nothing when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


def _refuse_unknown(names: Iterable[str], known: Collection[str], where: str) -> None:
    wrong = [f"{name}{nearest(name, known)}" for name in sorted(names) if name not in known]
    if wrong:
        raise SettingsError(f"{where}: unknown setting " + "; ".join(wrong))


def _environment(role: type[BaseSettings], known: Collection[str]) -> Layer:
    variables = {PREFIX + name.upper() for name in known}
    ours = {name for name in os.environ if name.startswith(PREFIX)} - RESERVED
    _refuse_unknown(ours, variables, "environment")
    return Layer("environment", EnvSettingsSource(role)())


def _file(config: Path | None) -> Path | None:
    """The one file that is read: `--config`, `GPUYARD_CONFIG`, else the first of the usual places (C-05)."""
    asked = config or (Path(os.environ["GPUYARD_CONFIG"]) if os.environ.get("GPUYARD_CONFIG") else None)
    if asked is None:
        return next((path for path in places.config_files() if path.is_file()), None)
    if not asked.is_file():
        raise SettingsError(f"{asked}: no such settings file")
    return asked


def _read_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    tls = values.get("tls")
    if isinstance(tls, dict):
        del values["tls"]
        _refuse_unknown(tls, {"cert", "key"}, f"{path} [tls]")
        values |= {f"tls_{name}": value for name, value in tls.items()}
    _refuse_unknown(values, known, str(path))
    return values


def _local_server(found: Iterable[Layer]) -> Layer:
    """URL and key of this machine's `gpuyard up`, unless a server or key was named: never one's key to the other."""
    if not any(layer.values.keys() & {"server_url", "api_key"} for layer in found):
        for path in places.local_files():
            try:
                left = json.loads(path.read_text(encoding="utf-8"))
                return Layer(f"{LOCAL} ({path})", {"server_url": left["url"], "api_key": left["api_key"]})
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return Layer(LOCAL, {})
