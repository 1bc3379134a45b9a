"""A JSON object's members where they stand in its text, so that a body travels byte for byte (OPENAI_CONTRACT 1.4)."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple


class Member(NamedTuple):
    """One `"key": value`: it begins at `start`, its value at `value`, and both end before `end`; in characters."""

    key: str
    start: int
    value: int
    end: int


def members(text: str) -> Iterator[Member]:
    """Give the members of an object that a JSON parser accepted already, in order, a repeated key each time."""
    position = _skip(text, _skip(text, 0) + 1)
    while text[position] != "}":
        start = position
        key, position = json.decoder.scanstring(text, position + 1)  # type: ignore[attr-defined]
        value = _skip(text, _skip(text, position) + 1)
        _, end = LONG_INTEGERS.raw_decode(text, value)
        yield Member(key, start, value, end)
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def without(body: bytes, keys: Collection[str], inner: Mapping[str, Collection[str]] | None = None) -> bytes:
    """Give an object without some of its members; what is left stays as it was written.

    `inner` names members of those of its members that are objects.
    """
    return _without(body.decode("utf-8"), keys, inner or {}).encode()


def _without(text: str, keys: Collection[str], inner: Mapping[str, Collection[str]]) -> str:
    kept: list[str] = []
    for key, start, value, end in members(text):
        if key in inner and text[value] == "{":
            kept.append(text[start:value] + _without(text[value:end], inner[key], {}))
        elif key not in keys:
            kept.append(text[start:end])
    return "{" + ",".join(kept) + "}"


def refuse_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which Python's parser takes."""
    raise ValueError(f"{name} is not JSON")


LONG_INTEGERS = json.JSONDecoder(parse_constant=refuse_constant, parse_int=float)
"""Reads integers of any length, as a float: for finding where a value ends."""


def _skip(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position
