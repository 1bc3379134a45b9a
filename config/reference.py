"""Rows of the settings reference, and of `gpuyard config show`: the fields themselves are the only source."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from config.broker_url import masked
from config.fields import Common
from config.logging import redact
from config.settings import ROLES, Role
from config.sources import PREFIX

URLS = frozenset({"broker_url", "database_url"})


@dataclass(frozen=True)
class SettingRow:
    """One setting, as people read it."""

    name: str
    variable: str
    default: str
    roles: tuple[Role, ...]
    description: str


def rows() -> tuple[SettingRow, ...]:
    """Every setting once, in the order of the classes, with the roles that read it."""
    found: dict[str, SettingRow] = {}
    for settings in ROLES.values():
        for name, field in settings.model_fields.items():
            found.setdefault(
                name,
                SettingRow(
                    name=name,
                    variable=PREFIX + name.upper(),
                    default=_default(field),
                    roles=tuple(role for role, cls in ROLES.items() if name in cls.model_fields),
                    description=field.description or "",
                ),
            )
    return tuple(found.values())


def shown(settings: Common, origins: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """(name, value, origin) of each setting. Keys are masked whole, URLs keep all but their password."""
    return tuple(
        (name, _text(name, getattr(settings, name)), origins[name]) for name in sorted(type(settings).model_fields)
    )


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "default" in extra:
        return str(extra["default"])
    value = None if field.default_factory else field.default
    return "" if value is None or value == () else _plain(value)


def _text(name: str, value: Any) -> str:
    if isinstance(value, SecretStr):
        return masked(value.get_secret_value()) if name in URLS else "***"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(part)}" for key, part in value.items())
    return "" if value is None else redact(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, BaseModel):
        return " ".join(f"{name}={part}" for name, part in value if part is not None)
    return str(value)
