"""Phase `setup`: heard of, and claiming nothing, until what this worker needs is there (PH-01, PH-07, BO-09, P-08).

At its start a worker waits for a state directory that can be written and for a runtime that has answered: a local
model that is being loaded, an engine that is still starting. What happens to either later is no set-up: the worker
stays `ready`, with its door closed. Whoever sets it up while it runs adds a need of its own: `setup` again till then.
"""

import threading
from collections.abc import Callable, Iterable

import structlog

from app.worker.loop import Loop

LOOK_SECONDS = 1.0
DONE_SECONDS = 3600.0
Need = Callable[[], str | None]
"""Says what is lacking still, or None. It is asked often, and must not wait."""
log = structlog.get_logger("gpuyard.worker")


class SettingUp(Loop):
    """`on_change(is_ready)` is called when the last need was met, and when there is one again."""

    name = "setup"

    def __init__(self, needs: Iterable[Need], *, on_change: Callable[[bool], object]) -> None:
        super().__init__()
        self._on_change = on_change
        self._lock = threading.Lock()
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

    def turn(self) -> float:
        """Look again."""
        self.look()
        return DONE_SECONDS if self._is_ready else LOOK_SECONDS
