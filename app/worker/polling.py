"""The bell by HTTP: a long poll, for as long as no broker can be heard (P, CC and BK rows; PROTOCOL 6).

One turn decides and never waits; three signals bring the next: this worker stops, a share ended, the poll is answered
(P-01). A poll that is abandoned for one of the others loses nothing: its cursor was not taken, so what it would have
said is said to the next.
"""

import threading
from collections.abc import Callable

import structlog

from app.client.errors import ControlPlaneError, Dismissed, Refused
from app.schemas.polls import Poll, PollAnswer, PolledMessage
from app.worker.backoff import Backoff
from app.worker.clock import Clock
from app.worker.loop import Loop

IDLE_SECONDS = 3600.0
"""Between two turns that nobody asked for."""
log = structlog.get_logger("gpuyard.worker")


class _Call(threading.Thread):
    """One poll under way. Daemonic: a process that ends waits for no answer."""

    def __init__(self, ask: Callable[[], PollAnswer], done: Callable[[], None]) -> None:
        super().__init__(name="gpuyard-poll-call", daemon=True)
        self._ask = ask
        self._done = done
        self.answer: PollAnswer | None = None
        self.error: ControlPlaneError | None = None
        self.is_done = False

    def run(self) -> None:
        """Ask, and say that there is an answer."""
        try:
            self.answer = self._ask()
        except ControlPlaneError as error:
            self.error = error
        finally:
            self.is_done = True
            self._done()


class Polling(Loop):
    """`describe(cursor)` gives the next poll, or None while this worker has no permit for what one could bring."""

    name = "poll"

    def __init__(
        self,
        ask: Callable[[Poll], PollAnswer],
        backoff: Backoff,
        clock: Clock,
        *,
        describe: Callable[[str | None], Poll | None],
        on_message: Callable[[PolledMessage], None],
        on_dismissed: Callable[[Dismissed], None],
    ) -> None:
        super().__init__()
        self._ask = ask
        self._backoff = backoff
        self._clock = clock
        self._describe = describe
        self._on_message = on_message
        self._on_dismissed = on_dismissed
        self._is_wanted = False
        self._is_said = False
        self._anew = threading.Event()
        self._collapse = threading.Event()
        self._cursor: str | None = None
        self._not_before = float("-inf")
        self._call: _Call | None = None

    # --- from any thread

    def begin(self, after_seconds: float = 0.0) -> None:
        """Poll from now on, or a little later: the broker is away."""
        if not self._is_wanted:
            self._not_before = self._clock() + after_seconds
            self._is_wanted = True
            self.wake()

    def end(self) -> None:
        """Poll no more: the broker is heard again. What a poll under way brings is left to the broker."""
        self._is_wanted = False
        if self._is_said:
            self._is_said = False
            log.info("polls.ended")
        self.wake()

    def share_ended(self) -> None:
        """Ask anew at once, with the permit that is free again (P-02)."""
        self._anew.set()
        self.wake()

    def reset_backoff(self) -> None:
        """Somebody asked to try again now (BK-04)."""
        self._collapse.set()
        self.wake()

    # --- its own thread

    def turn(self) -> float:
        """Take an answer, and ask again if that is to be done now."""
        if self._collapse.is_set():
            self._collapse.clear()
            self._backoff.reset()
            self._not_before = float("-inf")
        call = self._call
        if call is not None and call.is_done:
            self._call = None
            if self._is_wanted:
                self._take(call)
        poll = self._describe(self._cursor) if self._is_wanted else None
        if poll is None:
            if not self._is_wanted:
                self._call = None
            return IDLE_SECONDS
        if self._anew.is_set():
            self._anew.clear()
            self._call = None
        if self._call is not None:
            return IDLE_SECONDS
        if (left := self._not_before - self._clock()) > 0:
            return left
        if not self._is_said:
            self._is_said = True
            log.info("polls.began")
        call = _Call(lambda: self._ask(poll), self.wake)
        call.start()
        self._call = call
        return IDLE_SECONDS

    def _take(self, call: _Call) -> None:
        if call.answer is not None:
            self._backoff.reset()
            self._not_before = float("-inf")
            self._cursor = call.answer.cursor
            for message in call.answer.messages:
                self._on_message(message)
        elif isinstance(call.error, Dismissed):
            self._on_dismissed(call.error)
            self.stop()
        else:
            seconds = self._backoff.failed()
            self._not_before = self._clock() + seconds
            say = log.warning if isinstance(call.error, Refused) else log.debug  # of silence the client says enough
            say("poll.failed", why=str(call.error), again_in_seconds=round(seconds, 2))
