"""The bell by HTTP (A-03, A-16 to A-22; PROTOCOL 6).

POST /workers/poll    Poll -> PollAnswer    409 superseded, 429 or 503 too_many_polls, 503 unavailable
"""

from pydantic import Field

from app.domain.polls import MAX_CURSOR
from app.domain.workers import Phase
from app.schemas.wire import Count, Name, Seconds, Wire
from app.schemas.workers import Opaque

MAX_WAIT_SECONDS = 60.0


class Poll(Wire):
    """Wait for messages, at most `wait_seconds`. It counts as heard of, renews no lease and never grants.

    `cursor` is that of the last answer that arrived, None before the first: what was lost with an answer comes again.
    `free` are the permits at hand; with none the answer holds commands alone. No `phase`: an older worker (A-19).
    """

    worker_id: Name
    boot_id: Opaque
    cursor: str | None = Field(default=None, max_length=MAX_CURSOR)
    phase: Phase | None = None
    current_invocations: Count = 0
    free: Count = 1
    wait_seconds: Seconds = 30.0


class PolledMessage(Wire):
    """What the broker would have carried: `work`, `stop`, `drain` or `reset_backoff`; a worker ignores other kinds."""

    kind: str
    batch_id: str | None = None


class PollAnswer(Wire):
    """Messages, none when the time passed without one, and the cursor of the next poll."""

    cursor: str
    messages: list[PolledMessage] = Field(default_factory=list)
