"""Server-sent events as they come from the control plane: one JSON document each."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `id` is the cursor to go on from, None where the message has none."""

    type: str
    id: str | None
    data: Any


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Read messages; comments are left out, and so is one that a break of the connection cut short."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            yield Message(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
        if not line:
            fields = {}
