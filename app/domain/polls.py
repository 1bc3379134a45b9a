"""What a poll answers with: what stands for a worker, less what it was told already (PROTOCOL 6).

The cursor is what was told. A worker sends the cursor of the last answer it got, so what a lost answer said is said
again, and what arrived is not. A bell for the same work is another one after `AGAIN_SECONDS`: what rang may be left.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

AGAIN_SECONDS = 5.0
MAX_CURSOR = 8192


class MessageKind(StrEnum):
    """What a worker may be told."""

    WORK = "work"
    STOP = "stop"
    DRAIN = "drain"
    RESET_BACKOFF = "reset_backoff"


@dataclass(frozen=True, slots=True)
class Bell:
    """Work that waits: its batch, and how often that was rung."""

    batch_id: str
    ring_no: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands for a worker at the moment `now`. Times are database milliseconds, None: nobody asked."""

    now: int
    drain_at: int | None = None
    reset_at: int | None = None
    stopping: tuple[str, ...] = ()
    bell: Bell | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker was told, in the shape of `Standing`; `bell_at` is when it was told of `bell`."""

    drain_at: int | None = None
    reset_at: int | None = None
    stopping: tuple[str, ...] = ()
    bell: Bell | None = None
    bell_at: int = 0

    @property
    def cursor(self) -> str:
        """Write it as a worker carries it."""
        bell = [self.bell.batch_id, self.bell.ring_no] if self.bell is not None else None
        text = json.dumps([self.drain_at, self.reset_at, self.stopping, bell, self.bell_at], separators=(",", ":"))
        return urlsafe_b64encode(text.encode()).decode("ascii")

    @classmethod
    def read(cls, cursor: str | None) -> Self:
        """Read a cursor; one of another version, or of somebody's making, says that nothing was told."""
        try:
            found = json.loads(urlsafe_b64decode(cursor or ""))
            drain_at, reset_at, stopping, bell, bell_at = found
            return cls(
                drain_at=_moment(drain_at),
                reset_at=_moment(reset_at),
                stopping=tuple(str(batch_id) for batch_id in stopping),
                bell=Bell(str(bell[0]), int(bell[1])) if bell is not None else None,
                bell_at=int(bell_at),
            )
        except (ValueError, TypeError, LookupError, RecursionError):
            return cls()

    @property
    def commanded_at(self) -> int:
        """Say when the latest command that was told was given."""
        return max(self.drain_at or 0, self.reset_at or 0)


@dataclass(frozen=True, slots=True)
class Message:
    """One message to a worker; `batch_id` is a hint for work, and what is to stop."""

    kind: MessageKind
    batch_id: str | None = None


def news(told: Told, standing: Standing) -> tuple[list[Message], Told]:
    """Give what a worker does not know yet, and what it will have been told with that."""
    messages: list[Message] = []
    if standing.drain_at is not None and standing.drain_at != told.drain_at:
        messages.append(Message(MessageKind.DRAIN))
    if standing.reset_at is not None and standing.reset_at != told.reset_at:
        messages.append(Message(MessageKind.RESET_BACKOFF))
    messages += [Message(MessageKind.STOP, batch) for batch in standing.stopping if batch not in told.stopping]
    after = replace(told, drain_at=standing.drain_at, reset_at=standing.reset_at, stopping=standing.stopping)
    due = standing.now - told.bell_at >= AGAIN_SECONDS * 1000
    if standing.bell is not None and (standing.bell != told.bell or due):
        messages.append(Message(MessageKind.WORK, standing.bell.batch_id))
        after = replace(after, bell=standing.bell, bell_at=standing.now)
    return messages, after


def _moment(value: Any) -> int | None:
    return None if value is None else int(value)
