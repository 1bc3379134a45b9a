"""A thread that does one thing again and again until it is told to stop, and a call that nobody just waits for."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

import structlog

log = structlog.get_logger("gpuyard.worker")
AnswerT = TypeVar("AnswerT")


class Loop(ABC):
    """Subclasses say what one turn does and how long to wait after it. A turn that raises is logged and repeated."""

    name: str
    context: Mapping[str, str] = {}
    """What each line in the log of this thread says."""

    def __init__(self) -> None:
        self._awake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"gpuyard-{self.name}", daemon=True)

    @abstractmethod
    def turn(self) -> float:
        """Do it once; give the seconds until the next time."""

    def start(self) -> None:
        """Begin with the first turn at once."""
        self._thread.start()

    @property
    def is_turning(self) -> bool:
        """Whether it is this very loop that asks."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Have the next turn now, or right after the one under way."""
        self._awake.set()

    def stop(self) -> None:
        """End after the turn under way. Does not wait."""
        self._stopped.set()
        self._awake.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(**self.context)
        while not self._stopped.is_set():
            self._awake.clear()
            try:
                seconds = self.turn()
            except Exception:
                log.exception("loop.failed", loop=self.name)
                seconds = 1.0
            if not self._stopped.is_set():
                self._awake.wait(seconds)


def answered(call: Callable[[], AnswerT], *, every: float, meanwhile: Callable[[], object]) -> AnswerT:
    """Return or raise what `call` does in another thread, and run `meanwhile` here each `every` seconds until then."""
    answer: Future[AnswerT] = Future()
    context = copy_context()

    def make() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(error)

    try:
        threading.Thread(target=make, name="gpuyard-call", daemon=True).start()
    except RuntimeError:  # this host lets none be started; the call is worth more than what is done meanwhile
        return call()
    while not wait([answer], every).done:
        meanwhile()
    return answer.result()
