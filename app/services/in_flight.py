"""How much of a kind is under way in this process, bounded for each org and in all, so that no org takes all of it."""

import threading
from collections import Counter
from collections.abc import Collection

from app.domain.errors import TooManyAtOnce


class InFlight:
    """Counts what is under way. Thread-safe, and never waits. `what`: its name in the plural, for messages."""

    def __init__(self, what: str, *, per_org: int, in_all: int) -> None:
        self._what = what
        self._per_org = per_org
        self._in_all = in_all
        self._of_org: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.turn = threading.Lock()
        """Held by whoever looks at `full` and then begins."""

    def begin(self, org_id: str) -> None:
        """Count one more. Raises TooManyAtOnce where a bound is reached."""
        with self._lock:
            if self._of_org[org_id] >= self._per_org:
                raise self._refusal(f"{self._per_org} {self._what} of this org are")
            if self._of_org.total() >= self._in_all:
                raise self._refusal(f"{self._in_all} {self._what} are")
            self._of_org[org_id] += 1

    def end(self, org_id: str) -> None:
        """Count one less."""
        with self._lock:
            self._of_org[org_id] -= 1
            self._of_org += Counter()  # forgets who has none

    def full(self) -> Collection[str]:
        """Name the orgs that have as many under way as they may."""
        with self._lock:
            return sorted(org_id for org_id, count in self._of_org.items() if count >= self._per_org)

    def _refusal(self, running: str) -> TooManyAtOnce:
        return TooManyAtOnce(f"{running} under way, and more are not begun: try again later", code="too_many_in_flight")
