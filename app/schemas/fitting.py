"""Making a message of values that may be out of its bounds: what a driver says, or what was stored under wider ones."""

from copy import deepcopy
from typing import Any, TypeVar

from pydantic import ValidationError

from app.schemas.wire import Wire

ROUNDS = 8
"""More than the levels of any message: each takes out what does not fit, and what lacks it then."""
Message = TypeVar("Message", bound=Wire)
_GONE = object()


def fit(kind: type[Message], value: object) -> Message | None:
    """Return a message of as much of `value` as fits; None when something that it cannot be without does not."""
    for _ in range(ROUNDS):
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            value = _without(value, [(p["type"], p["loc"]) for p in problems])
    return None


def _without(value: object, problems: list[tuple[str, tuple[int | str, ...]]]) -> object:
    """Take out what is wrong; where something is missing, what it is missing from."""
    kept = deepcopy(value)
    for kind, where in problems:
        holder: Any = None
        inner: Any = kept
        last: int | str = ""
        for step in where[:-1] if kind == "missing" else where:
            if not _has(inner, step):
                break
            holder, last, inner = inner, step, inner[step]
        if holder is None:
            return None
        holder[last] = _GONE
    return _swept(kept)


def _has(holder: object, step: int | str) -> bool:
    if isinstance(holder, list):
        return isinstance(step, int) and step < len(holder)
    return isinstance(holder, dict) and step in holder


def _swept(value: object) -> object:
    if isinstance(value, dict):
        return {key: _swept(inner) for key, inner in value.items() if inner is not _GONE}
    if isinstance(value, list):
        return [_swept(inner) for inner in value if inner is not _GONE]
    return value
