"""How many prompts may be in flight on this worker: a number that is set, or one that is found (R-17)."""

import math
import threading

from app.domain.runtimes import RuntimeLoad
from app.worker.clock import Clock
from app.worker.permits import Permits
from app.worker.sizing import AutoSize


class PromptSize:
    """Keeps the limit of `permits`. Methods that return a bool say whether the limit changed. Thread-safe."""

    def __init__(self, permits: Permits, clock: Clock, *, fixed: int | None) -> None:
        self._permits = permits
        self._auto = AutoSize(clock) if fixed is None else None
        self._known_slots: int | None = None
        self._setting = threading.Lock()
        permits.set_limit(fixed if fixed is not None else self._auto.size if self._auto else 1)

    @property
    def is_auto(self) -> bool:
        """Whether the number sizes itself."""
        return self._auto is not None

    def runtimes_changed(self, known_slots: int | None) -> bool:
        """Take note of the slots that the live runtimes tell; the same again changes nothing at once."""
        if self._auto is None:
            return False
        with self._setting:
            if known_slots == self._known_slots:
                self._auto.look_again()
                return False
            self._known_slots = known_slots
            self._permits.set_limit(self._auto.restart(known_slots))
        return True

    def row_done(self, began_at: float) -> bool:
        """Count a row that a runtime answered, begun at this time of the clock."""
        return self._auto is not None and self._resized(self._auto, self._auto.row_done(began_at))

    @property
    def seconds_between_readings(self) -> float:
        """How often the runtimes' gauges are worth reading."""
        return self._auto.seconds_between_readings if self._auto else math.inf

    def loaded(self, load: RuntimeLoad, in_flight: int) -> bool:
        """Take a reading of the runtimes' gauges."""
        return self._auto is not None and self._resized(self._auto, self._auto.loaded(load, in_flight))

    def refused(self) -> None:
        """A runtime would not take a row now."""
        if self._auto is not None:
            self._auto.refused()

    def starved(self) -> None:
        """Rows ran out."""
        if self._auto is not None:
            self._auto.starved()

    def _resized(self, auto: AutoSize, size: int | None) -> bool:
        if size is None:
            return False
        with self._setting:  # two threads may come with a size each: whoever is last sets the latest
            self._permits.set_limit(auto.size)
        return True
