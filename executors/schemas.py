"""Whether a value matches the JSON schema that a row asked for: said within a bounded time, whoever wrote the schema.

What could take long is not looked at: regular expressions, and comparisons of all items with each other.
"""

import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.validators import extend
from referencing import Registry

MAX_STEPS = 10_000
"""Keywords that are looked at for one value, and what is listed in them; a schema may refer to itself twice a level."""
MAX_SCHEMA_BYTES = 32 * 1024
_REGULAR = "patternProperties"
_NOT_LOOKED_AT = ("pattern", _REGULAR, "unevaluatedProperties", "uniqueItems", "format")
_Errors = Iterator[Any] | None
_Check = Callable[[Any, Any, Any, Any], _Errors]


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...


class _TooManyStepsError(Exception):
    pass


class _Steps(threading.local):
    left = 0


_steps = _Steps()


def matches(value: object, schema: bytes) -> bool | None:
    """Say whether a value matches a schema (JSON); None where it cannot be said."""
    validator = _validator(schema) if len(schema) <= MAX_SCHEMA_BYTES else None
    if validator is None:
        return None
    _steps.left = MAX_STEPS
    try:
        return validator.is_valid(value)
    except Exception:  # noqa: BLE001 - the steps are used up, or the library chokes on a reference, or on NaN
        return None


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> _Validator | None:
    try:
        found = msgspec.json.decode(schema)
        Draft202012Validator.check_schema(found)
        # An empty registry fetches nothing: a reference to another address is one that cannot be resolved.
        made: _Validator = _Bounded(found, registry=Registry())
    except Exception:  # noqa: BLE001 - whatever is wrong with it: nothing can be said by such a schema
        return None
    return made


def _counted(check: _Check) -> _Check:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
        _steps.left -= 1 + (len(value) if isinstance(value, list | dict) else 0)
        if _steps.left < 0:
            raise _TooManyStepsError
        return check(validator, value, instance, schema)

    return counted


def _additional(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    if _REGULAR in schema:
        return None
    found: _Errors = Draft202012Validator.VALIDATORS["additionalProperties"](validator, value, instance, schema)
    return found


_Bounded: Any = extend(
    Draft202012Validator,
    {name: _counted(check) for name, check in Draft202012Validator.VALIDATORS.items()}
    | {"additionalProperties": _counted(_additional)}
    | dict.fromkeys(_NOT_LOOKED_AT, lambda *_: None),
)
