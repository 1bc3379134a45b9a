"""What a test has the fake control plane answer to the next call of a route."""

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Answer this instead of doing anything."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lose:
    """Do what was asked and close the connection without an answer."""


@dataclass(frozen=True)
class Cut:
    """Of a download, send `count` bytes and close the connection."""

    count: int


@dataclass(frozen=True)
class Hang:
    """Answer only when the event is set."""

    until: threading.Event


@dataclass(frozen=True)
class Drip:
    """Answer byte by byte, without end, until the event is set."""

    until: threading.Event
