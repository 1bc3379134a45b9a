"""Looks at runtimes, each in a thread of its own: one that hangs keeps nobody from seeing the others (A-02)."""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from app.domain.runtimes import RuntimeFacts
from app.worker.places import Place

PATIENCE_SECONDS = 10.0
"""A look is over after about two; one that takes so long hangs, and its runtime counts as down until it comes back."""
log = structlog.get_logger("gpuyard.worker")


class Looks:
    """Tells `note` what each look showed; `note` says whether that is anything new. Thread-safe."""

    def __init__(self, note: Callable[[Place, RuntimeFacts], bool], patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._note = note
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._turns: dict[Place, threading.Lock] = {}
        self._under_way: dict[Place, threading.Thread] = {}
        self._is_news = False

    def look_at(self, places: Collection[Place]) -> bool:
        """Look at runtimes, side by side. True when anything was new since the last time that this was asked."""
        threads = [(place, self._begin(place)) for place in places]
        end = time.monotonic() + self._patience_seconds
        for place, thread in threads:
            if thread is None:
                continue
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                reason = f"a look at it has not come back within {self._patience_seconds:g} s"
                self._told(place, replace(place.facts, alive=False, reason=reason))
        with self._lock:
            found, self._is_news = self._is_news, False
        return found

    def look_now(self, place: Place) -> RuntimeFacts:
        """Look at one runtime in this thread. No look that began before has a say after this one."""
        with self._lock:
            turn = self._turns.setdefault(place, threading.Lock())
        with turn:
            found = _looked(place)
            self._told(place, found)
        return found

    def _begin(self, place: Place) -> threading.Thread | None:
        under_way = self._under_way.get(place)
        if under_way is not None and under_way.is_alive():
            return under_way
        name = f"gpuyard-look-{place.executor.kind}"
        thread = threading.Thread(target=self.look_now, args=(place,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started now: what is known of the runtime stands until the next look
            return None
        self._under_way[place] = thread
        return thread

    def _told(self, place: Place, found: RuntimeFacts) -> None:
        if self._note(place, found):
            with self._lock:
                self._is_news = True


def _looked(place: Place) -> RuntimeFacts:
    try:
        return place.executor.probe()
    except Exception as error:  # a third party's executor; its runtime counts as down, the worker goes on
        log.exception("runtime.probe_failed", runtime=place.executor.name)
        return replace(place.facts, alive=False, reason=f"the probe failed: {type(error).__name__}: {error}")
