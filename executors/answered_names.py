"""The names of models in a runtime's answers: one that was not seen before may mean that another server answers.

A runtime may well answer with another name than it was asked for: an alias, a dated version, the path of a file. So a
name is no fault by itself; the first time it comes the runtime's list of models decides, and then it is known.
"""

from typing import Any

import msgspec

_MAX_NAMES = 1000


class _Named(msgspec.Struct):
    model: Any = None


_named = msgspec.json.Decoder(_Named)


class AnsweredNames:
    """What one runtime called its models so far."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def are_known(self, asked: str, body: bytes) -> bool:
        """Tell whether an answer names the model that was asked for, none at all, or one that it named before."""
        said = named_model(asked, body)
        return said is None or said == asked or said in self._names or len(self._names) >= _MAX_NAMES

    def learn(self, body: bytes) -> None:
        """Take the answer's name as one of the runtime's own."""
        name = _name_in(body)
        if name is not None:
            self._names.add(name)


def named_model(asked: str, body: bytes) -> str | None:
    """Return the model that an answer names, None where it names none. Nearly all name the one that was asked for."""
    name = asked.encode("utf-8", "replace")
    if b'"model":"%b"' % name in body or b'"model": "%b"' % name in body:
        return asked
    return _name_in(body)


def _name_in(body: bytes) -> str | None:
    try:
        name = _named.decode(body).model
    except (msgspec.MsgspecError, RecursionError):
        return None
    return name if isinstance(name, str) and name else None
