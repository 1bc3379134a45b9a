"""The first rows of a batch on this worker: they run alone, until one is completed (app.services.canary).

| of the first rows | then |
|---|---|
| one is completed, here or, by a claim's answer, elsewhere | all rows may start |
| they fail, but not alike, or not by their own doing | all rows may start; the control plane is told |
| so many as are to run failed alike | none starts; the control plane is told until it says what to do |
"""

import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from app.domain.first_rows import kind_of, said
from app.domain.rows import Reply
from app.schemas.segments import FirstRows
from app.worker.verdicts import Came, came

log = structlog.get_logger("gpuyard.worker")


class Rows(Protocol):
    """The rows that are not started yet."""

    def bound(self, most: int | None) -> None:
        """Have at most so many rows run at once; None: as many as there are permits."""


class Canary:
    """Thread-safe."""

    def __init__(self, rows: Rows, most: int) -> None:
        self._rows = rows
        self._most = most
        self.on_word: Callable[[], None] = lambda: None
        """Called when there is something to tell; it must not block."""
        self._lock = threading.Lock()
        self._failed = 0
        self._first: FirstRows | None = None
        self._word: FirstRows | None = None
        self._is_over = not most
        if most:
            rows.bound(most)

    def kept(self, row: int, reply: Reply) -> None:
        """A row that ran has ended with this reply, which stands."""
        if self._is_over:
            return
        with self._lock:
            if self._is_over or self._word is not None:
                return
            if reply.ok:
                self._end()
                return
            kind = kind_of(reply) if came(reply) is Came.ANSWER else None
            if self._first is None:
                self._first = FirstRows(kind=kind, rows=1, row=row, message=said(reply))
            self._failed += 1
            if kind is None or kind != self._first.kind:
                self._word = self._first.model_copy(update={"kind": None, "rows": self._failed})
                self._end()
            else:
                self._rows.bound(self._most - self._failed)
                if self._failed < self._most:
                    return
                self._word = self._first.model_copy(update={"rows": self._failed})
                log.warning("rows.all_fail", rows=self._failed, kind=kind, why=self._word.message)
        self.on_word()

    def let_all(self) -> None:
        """A row of the batch was completed elsewhere, or it is to run all the same."""
        with self._lock:
            if not self._is_over:
                self._word = None
                self._end()

    @property
    def word(self) -> FirstRows | None:
        """What is to be told; None: nothing."""
        return self._word

    def told(self, word: FirstRows, *, goes_on: bool) -> None:
        """The control plane has heard it. A word that it has not answered is said again."""
        if goes_on or word.kind is None:
            self.let_all()
            with self._lock:
                self._word = None

    def _end(self) -> None:
        self._is_over = True
        self._rows.bound(None)
