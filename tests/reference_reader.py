"""A slow reader of input files, written from the standards alone (RFC 8259, RFC 3629) and nothing of ours."""

import re
from dataclasses import dataclass
from typing import Any

DEPTH = 256
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class NotJson(Exception):
    pass


@dataclass
class Read:
    """One row: what is at fault with its line, or why no worker runs it, or what runs."""

    line: int
    fault: str | None = None
    rejected: str | None = None
    custom_id: str | None = None
    model: str | None = None
    body: bytes | None = None


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Parser:
    """Recursive descent, one character at a time. An object is {key: (value, its text)}; the last of a key counts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> Any:
        value = self.value(0)
        self.space()
        if self.at != len(self.text):
            raise NotJson
        return value

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def take(self, wanted: str) -> None:
        if self.text[self.at : self.at + 1] != wanted:
            raise NotJson
        self.at += 1

    def value(self, depth: int) -> Any:
        self.space()
        first = self.text[self.at : self.at + 1]
        if first in ("{", "[") and first:
            if depth >= DEPTH:
                raise NotJson
            return self.members(depth + 1) if first == "{" else self.items(depth + 1)
        if first == '"':
            return self.string()
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise NotJson
        self.at = found.end()
        return Number(found[0])

    def items(self, depth: int) -> Any:
        self.take("[")
        found: list[Any] = []
        self.space()
        if self.text[self.at : self.at + 1] != "]":
            while True:
                found.append(self.value(depth))
                self.space()
                if self.text[self.at : self.at + 1] != ",":
                    break
                self.at += 1
        self.take("]")
        return found

    def members(self, depth: int) -> Any:
        self.take("{")
        found: dict[str, tuple[Any, str]] = {}
        self.space()
        if self.text[self.at : self.at + 1] != "}":
            while True:
                self.space()
                key = self.string()
                self.space()
                self.take(":")
                self.space()
                start = self.at
                value = self.value(depth)
                found[key] = (value, self.text[start : self.at])
                self.space()
                if self.text[self.at : self.at + 1] != ",":
                    break
                self.at += 1
        self.take("}")
        return found

    def string(self) -> str:
        self.take('"')
        out: list[str] = []
        while True:
            character = self.text[self.at : self.at + 1]
            if not character or ord(character) < 0x20:
                raise NotJson
            self.at += 1
            if character == '"':
                # Two escaped halves of a pair are one character.
                return "".join(out).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
            if character != "\\":
                out.append(character)
                continue
            escape = self.text[self.at : self.at + 1]
            self.at += 1
            if escape == "u":
                digits = self.text[self.at : self.at + 4]
                if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                    raise NotJson
                self.at += 4
                out.append(chr(int(digits, 16)))
            elif escape in _ESCAPES:
                out.append(_ESCAPES[escape])
            else:
                raise NotJson


def read_file(data: bytes, endpoint: str) -> list[Read]:
    """Every row of a file, with the first fault that a reader who goes from left to right finds."""
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    rows = [
        _read(number, content.removesuffix(b"\r"), endpoint)
        for number, content in enumerate(data.split(b"\n"), 1)
        if content.strip(b" \t\r\x0b\x0c")
    ]
    used: set[str] = set()
    for row in rows:
        if row.fault is None and row.custom_id is not None:
            if row.custom_id in used:
                row.fault, row.rejected, row.custom_id = "duplicate_custom_id", None, row.custom_id
            used.add(row.custom_id)
    return rows


def _read(number: int, content: bytes, endpoint: str) -> Read:
    try:
        value = Parser(content.decode("utf-8")).whole()
    except (NotJson, UnicodeDecodeError):
        return Read(number, "invalid_json_line")
    if not isinstance(value, dict):
        return Read(number, "invalid_request")
    fault = _fault(value, endpoint)
    if fault is not None:
        return Read(number, fault)
    body, text = value["body"]
    rejected = None
    if _asks(body.get("stream", (None, ""))[0]):
        rejected = "UNSUPPORTED_PARAMETER"
    elif _is_halved(value):
        rejected = "INVALID_JSON"
    return Read(number, None, rejected, value["custom_id"][0], body["model"][0], text.encode())


def _fault(value: dict[str, Any], endpoint: str) -> str | None:
    for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
        if name not in value:
            return "missing_required_parameter"
        if not isinstance(value[name][0], kind) or isinstance(value[name][0], Number):
            return "invalid_request"
    if value["method"][0] != "POST":
        return "invalid_request"
    if value["url"][0] != endpoint:
        return "url_mismatch"
    custom_id, body = value["custom_id"][0], value["body"][0]
    if not 0 < len(custom_id) <= 512 or _is_halved(custom_id):
        return "invalid_request"
    if "model" not in body:
        return "missing_required_parameter"
    model = body["model"][0]
    good = isinstance(model, str) and not isinstance(model, Number) and 0 < len(model) <= 512 and model.isprintable()
    return None if good else "invalid_request"


def _asks(stream: Any) -> bool:
    if isinstance(stream, Number):
        return float(stream) != 0
    return bool(stream)


def _is_halved(value: Any) -> bool:
    if isinstance(value, str):
        return any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    if isinstance(value, list):
        return any(_is_halved(item) for item in value)
    if isinstance(value, dict):
        return any(_is_halved(key) or _is_halved(inner) for key, (inner, _) in value.items())
    return False
