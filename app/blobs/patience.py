"""Asking a store that may hang: each call into a file system whose server is away blocks, and none can be ended."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from app.blobs.store import BlobUnavailable

PATIENCE_SECONDS = 3.0
Answer = TypeVar("Answer")


class Patience(Generic[Answer]):
    """Asks one question in a thread of its own, and waits for a few seconds at most. Thread-safe.

    While an answer is out nobody asks again: who comes meanwhile waits for the same one, so a store that hangs has one
    thread of ours.
    """

    def __init__(self, question: Callable[[], Answer], *, seconds: float = PATIENCE_SECONDS) -> None:
        self._question = question
        self._seconds = seconds
        self._lock = threading.Lock()
        self._asked: Future[Answer] | None = None
        self._since = 0.0

    def ask(self) -> Answer:
        """Return the answer. Raises BlobUnavailable when none comes in time, and what the question raises."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked, self._since = Future(), time.monotonic()
                threading.Thread(target=self._answer, args=(self._asked,), name="contents-probe", daemon=True).start()
            asked, since = self._asked, self._since
        try:
            return asked.result(max(0.0, since + self._seconds - time.monotonic()))
        except TimeoutError:
            waited = time.monotonic() - since
            raise BlobUnavailable(
                f"the store of contents hangs: it has not answered for {waited:.0f} s; see whether its disk or file "
                "server answers"
            ) from None

    def _answer(self, asked: "Future[Answer]") -> None:
        try:
            asked.set_result(self._question())
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            asked.set_exception(error)
