"""One shard in hand: which of its rows run, which are finished and not stored yet, and how its lease will end."""

import itertools
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from ulid import ULID

from app.domain.rows import RowErrorCode, Usage
from app.domain.rowsets import RowSet
from app.schemas.claims import Grant
from app.worker.backlog import Backlog
from executors.cancellation import CancelToken


class Finished(NamedTuple):
    """A row with its stored line (`app.schemas.handins`), and in what its answer is not what the row asked for."""

    row: int
    line: bytes
    completed: bool
    usage: Usage
    off_format: bool = False
    other_model: bool = False


class Fate(StrEnum):
    """How the shard stands. Only an OPEN one starts rows; a GONE one is nobody's business here any more."""

    OPEN = "open"
    LEAVING = "leaving"
    GONE = "gone"


class Failure(NamedTuple):
    """Why a whole shard could not be run (A-08)."""

    code: RowErrorCode
    message: str


class Shard:
    """All methods are thread-safe, and none but the two that say wait blocks.

    `on_change` is called, without the lock, when it is settled, and after each row of one that runs row by row.
    """

    def __init__(self, grant: Grant, backlog: Backlog, on_change: Callable[["Shard"], None]) -> None:
        self.grant = grant
        self.token = CancelToken()
        self.end_request = str(ULID())
        self.fate = Fate.OPEN
        self.reason = ""
        self.failure: Failure | None = None
        self.is_started = False
        self.owes_word = False
        """A heartbeat says that no row of it has begun: before one does, the control plane is to hear of it."""
        self.word = threading.Lock()
        self.is_spooled = False
        self.done = RowSet.parse(grant.done)
        self._backlog = backlog
        self._on_change = on_change
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._underway = 0
        self._seq = itertools.count(1)
        self._unstarted = 0
        self._in_flight = 0
        self._is_loaded = False
        self._unfinished = grant.rows - len(self.done)
        self._pending: list[Finished] = []

    @property
    def lease_id(self) -> int:
        """The fencing token."""
        return self.grant.lease_id

    @property
    def is_open(self) -> bool:
        """Whether rows may start."""
        return self.fate is Fate.OPEN

    @property
    def is_settled(self) -> bool:
        """No row runs, and none will."""
        with self._lock:
            return self._is_settled()

    @property
    def is_complete(self) -> bool:
        """Every row is stored, or lies in what `take` gave or will give."""
        return self._unfinished == 0

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be handed in."""
        return not self._pending

    # --- the loader and the lanes

    def loaded(self, unstarted: int) -> bool:
        """Say how many rows are queued now. False: the shard left meanwhile, queue none."""
        with self._lock:
            if self.fate is not Fate.OPEN:
                return False
            self._is_loaded = True
            self._unstarted = unstarted
        if not unstarted:
            self._on_change(self)
        return True

    def begin(self) -> bool:
        """Start a row. False: the shard has left, throw the row away."""
        with self._lock:
            if self.fate is not Fate.OPEN:
                return False
            self.is_started = True
            self._unstarted -= 1
            self._in_flight += 1
            return True

    def list_unstarted(self) -> bool:
        """Tell a heartbeat whether no row has begun."""
        with self._lock:
            if not self.is_started:
                self.owes_word = True
            return not self.is_started

    def finish(self, row: Finished, *, ran: bool = True) -> None:
        """Keep a finished row; `ran=False` for one that was answered without `begin`."""
        with self._lock:
            self._in_flight -= ran
            if self.fate is not Fate.GONE:
                self._unfinished -= 1
                self._pending.append(row)
                self._backlog.add(len(row.line))
            settled = ran and self._is_settled()
            self._moved.notify_all()
        if settled or self.grant.row_by_row:
            self._on_change(self)

    def put_back(self) -> bool:
        """A row that began is to run again. False: the shard has left, and the row ended without an answer."""
        with self._lock:
            self._in_flight -= 1
            is_open = self.fate is Fate.OPEN
            self._unstarted += is_open
            settled = self._is_settled()
        if settled:
            self._on_change(self)
        return is_open

    def cut(self) -> None:
        """A row that began ended without an answer."""
        with self._lock:
            self._in_flight -= 1
            settled = self._is_settled()
        if settled:
            self._on_change(self)

    @property
    def unfinished(self) -> int:
        """Rows without an answer."""
        return self._unfinished

    def wait_stored(self, unfinished: int) -> None:
        """Wait until at most so many rows have no answer and every answer is stored, or until the shard leaves."""
        with self._lock:
            self._moved.wait_for(
                lambda: (
                    self.fate is not Fate.OPEN
                    or (self._unfinished <= unfinished and not self._pending and not self._underway)
                )
            )

    def wait_left(self, seconds: float) -> None:
        """Wait until the shard leaves, or for so long."""
        with self._lock:
            self._moved.wait_for(lambda: self.fate is not Fate.OPEN, seconds)

    # --- how it ends

    def leave(self, reason: str) -> None:
        """Start no more rows; what is in flight may end, is handed in, and the lease is released."""
        self._end(Fate.LEAVING, reason)

    def stop(self, reason: str) -> None:
        """Leave, and cut what is in flight."""
        self.leave(reason)
        self.token.cancel()

    def fail(self, code: RowErrorCode, message: str) -> None:
        """Leave with a failure report instead of a release; one that leaves already costs no attempt (DESIGN 6)."""
        with self._lock:
            if self.fate is not Fate.OPEN:
                return
            self.failure = Failure(code, message[:2000])
        self.leave(message)

    def drop(self, reason: str) -> None:
        """Cut everything and send nothing."""
        self._end(Fate.GONE, reason)
        self.token.cancel()

    def _end(self, fate: Fate, reason: str) -> None:
        with self._lock:
            if self.fate is Fate.GONE or self.fate is fate:
                return
            self.fate, self.reason = fate, reason
            self._unstarted = 0
            if fate is Fate.GONE:
                self._backlog.subtract(sum(len(row.line) for row in self._pending))
                self._pending.clear()
            self._moved.notify_all()
        self._on_change(self)

    # --- the settler

    def take(self, max_bytes: int) -> tuple[int, list[Finished]]:
        """Take finished rows, at least one and else at most `max_bytes`, with their sequence number."""
        with self._lock:
            size = 0
            for count, row in enumerate(self._pending):
                size += len(row.line)
                if size > max_bytes and count:
                    break
            else:
                count = len(self._pending)
            taken, self._pending = self._pending[:count], self._pending[count:]
            self._underway += len(taken)
            return next(self._seq), taken

    def next_seq(self) -> int:
        """Number another part."""
        return next(self._seq)

    def stored(self) -> None:
        """What was taken last is stored."""
        with self._lock:
            self._underway = 0
            self._moved.notify_all()

    def reopen(self) -> None:
        """The control plane misses rows that we took for stored: the shard is not complete after all."""
        with self._lock:
            self._unfinished += 1

    def pending_counts(self) -> tuple[int, int]:
        """Count the finished rows that are not handed in yet: completed, and all."""
        with self._lock:
            return sum(row.completed for row in self._pending), len(self._pending)

    def _is_settled(self) -> bool:
        if self.fate is Fate.OPEN and not self._is_loaded:
            return False
        return self._unstarted == 0 and self._in_flight == 0
