"""Phase `setup`: heard of, and claiming nothing, until what this worker needs is there (PH-01, PH-07, BO-09, P-08).

At its start a worker waits for a state directory that can be written and for a runtime that has answered: a local
model that is being loaded, an engine that is still starting. What happens to either later is no set-up: the worker
stays `ready`, with its door closed. Whoever sets it up while it runs adds a need of its own: `setup` again till then.
A worker that cannot start what it claimed is one of these: it claims nothing until it can start threads again.
"""

import threading
from collections.abc import Callable, Iterable

import structlog

from app.worker.backoff import Backoff
from app.worker.clock import Clock
from app.worker.loop import Loop

LOOK_SECONDS = 1.0
DONE_SECONDS = 3600.0
TRIED_THREADS = 8
"""A share needs more; these show that the limit was raised, and not only that one thread has ended."""
Need = Callable[[], str | None]
"""Says what is lacking still, or None. It is asked often, and must not wait."""
log = structlog.get_logger("gpuyard.worker")


class SettingUp(Loop):
    """`on_change(is_ready)` is called when the last need was met, and when there is one again."""

    name = "setup"

    def __init__(self, needs: Iterable[Need], *, on_change: Callable[[bool], object]) -> None:
        super().__init__()
        self._on_change = on_change
        self._lock = threading.RLock()  # what `on_change` starts may find that it cannot be started: another need
        self._needs = list(needs)
        self._is_ready = False
        self._said = ""

    def need(self, lacking: Need) -> None:
        """Be in set-up until `lacking` says None too."""
        with self._lock:
            self._needs.append(lacking)
        self.look()
        self.wake()

    def look(self) -> None:
        """Cross off what is there, once for all, and tell whether that was the last of it."""
        with self._lock:
            whys = {need: need() for need in self._needs}
            self._needs = [need for need, why in whys.items() if why is not None]
            is_ready, before = not self._needs, self._is_ready
            self._is_ready = is_ready
            why = "; ".join(text for text in whys.values() if text is not None)
            is_news, self._said = why not in {"", self._said}, why
            if is_news:
                log.warning("worker.setting_up", why=why)
            if is_ready is not before:
                self._on_change(is_ready)

    @property
    def lacking(self) -> str:
        """What the worker waits for; empty when it is ready."""
        return self._said

    def turn(self) -> float:
        """Look again."""
        self.look()
        return DONE_SECONDS if self._is_ready else LOOK_SECONDS


class CannotStartError(Exception):
    """No thread can be started for what was claimed: a limit of the host (`pids.max`, `ulimit`) or its memory."""


class ThreadStarts:
    """Counts claims that could not be started. `lacking` is a need: None again once threads can be started.

    The waits between two tries grow until a claim was started.
    """

    def __init__(self, waits: Backoff, clock: Clock, *, need: Callable[[Need], None]) -> None:
        self._waits = waits
        self._clock = clock
        self._need = need
        self._lock = threading.Lock()
        self._error = ""
        self._try_at = 0.0

    def failed(self, error: BaseException) -> None:
        """Claim nothing until the wait is over and threads can be started."""
        with self._lock:
            if self._error:
                return
            self._error = (
                f"it cannot start threads ({error or type(error).__name__}): raise its limits "
                "(pids.max, TasksMax, ulimit -u, ulimit -v) or free memory"
            )
            self._try_at = self._clock() + self._waits.failed()
        self._need(self.lacking)

    def worked(self) -> None:
        """A claim was started."""
        with self._lock:
            self._waits.reset()

    def lacking(self) -> str | None:
        """Say why nothing can be started. Tries again when it is time for that."""
        with self._lock:
            if self._clock() >= self._try_at:
                if _can_start_threads():
                    self._error = ""
                    return None
                self._try_at = self._clock() + self._waits.failed()
            return self._error


def _can_start_threads() -> bool:
    """Start several at a time, and end them."""
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(TRIED_THREADS):
            thread = threading.Thread(target=over.wait, name="gpuyard-try", daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError):
        return False
    finally:
        over.set()
        for thread in started:
            thread.join()
    return True
