"""A runtime whose rows end when the test says so."""

import threading
from collections.abc import Callable
from typing import ClassVar

from app.domain.rows import Reply, Row
from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.base import BaseExecutor
from executors.cancellation import CancelToken, RowCancelled
from executors.settings import ExecutorSettings

WAIT_SECONDS = 10.0
OK = Reply(status=200, body=b'{"ok":true}', request_id="req_1")


class SteeredExecutor(BaseExecutor):
    """Rows wait in `running` until `let` names them or `let_all` was called; `answers` may say what a row brings."""

    kind: ClassVar[str] = "steered"

    def __init__(self, *, slots: int | None = None) -> None:
        super().__init__(ExecutorSettings())
        self.changed = threading.Condition()
        self.running: set[int] = set()
        self.started: list[int] = []
        self.cut: list[int] = []
        self.finished: list[int] = []
        self.most_at_once = 0
        self.answers: dict[int, Callable[[], Reply]] = {}
        self.alive = True
        self.is_deaf = False
        """Whether a row goes on that was cut, as one does whose runtime cannot be told."""
        self._slots = slots
        self._free: set[int] = set()
        self._all_free = False

    def let(self, *rows: int) -> None:
        """Let these rows end."""
        with self.changed:
            self._free.update(rows)
            self.changed.notify_all()

    def let_all(self) -> None:
        """Let every row end, now and from now on."""
        with self.changed:
            self._all_free = True
            self.changed.notify_all()

    def wait(self, condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
        """Wait until `condition` holds."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), f"running {self.running}, started {self.started}"

    def probe(self) -> RuntimeFacts:
        """Serve the model `fake`."""
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=self.alive,
            models=(ServedModel("fake"),),
            endpoints=("/v1/chat/completions",),
            slots=self._slots,
        )

    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:  # noqa: ARG002 - the test decides
        """Wait for the test's word, or for a cancel."""

        def wake() -> None:
            with self.changed:
                self.changed.notify_all()

        with self.changed:
            self.started.append(row.number)
            self.running.add(row.number)
            self.most_at_once = max(self.most_at_once, len(self.running))
            self.changed.notify_all()
        try:
            with cancelled.watching(wake), self.changed:
                self.changed.wait_for(
                    lambda: self._all_free or row.number in self._free or (cancelled.is_cancelled and not self.is_deaf),
                    WAIT_SECONDS,
                )
        except RowCancelled:
            """Cancelled before it began to wait."""
        with self.changed:
            self.running.discard(row.number)
            (self.cut if cancelled.is_cancelled else self.finished).append(row.number)
            self.changed.notify_all()
        cancelled.raise_if_cancelled()
        return self.answers.get(row.number, lambda: OK)()

    def close(self) -> None:
        """Nothing is held."""
