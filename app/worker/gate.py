"""The one gate before every claim: a trigger takes a permit of this worker first, or goes home (PROTOCOL 6)."""

import threading
from collections.abc import Callable


class Permit:
    """The right to start rows of one batch. `all_started` gives the slot on, `close` ends the share."""

    def __init__(self, gate: "Gate") -> None:
        self._gate = gate
        self._holds_slot = True
        self._open = True

    @property
    def holds_slot(self) -> bool:
        """Whether the slot was not given on."""
        return self._holds_slot

    def all_started(self) -> None:
        """No row is left to start: the next batch may begin while the last rows of this one run (DESIGN 9)."""
        with self._gate.lock:
            if not self._holds_slot:
                return
            self._holds_slot = False
            self._gate.slots_taken -= 1
        self._gate.changed()

    def close(self) -> None:
        """The share has ended."""
        with self._gate.lock:
            if not self._open:
                return
            self._open = False
            self._gate.shares -= 1
            if self._holds_slot:
                self._holds_slot = False
                self._gate.slots_taken -= 1
        self._gate.changed()


class Gate:
    """`slots` shares may start rows at a time, and one more may be at its last rows; never more than `bound` in all.

    Closed while the worker may take nothing (phase). `on_change` is called without the lock after each change.
    """

    def __init__(self, slots: int, on_change: Callable[[], None] = lambda: None, *, bound: int | None = None) -> None:
        self.lock = threading.Lock()
        self.slots = slots
        self._bound = bound
        self.slots_taken = 0
        self.shares = 0
        self._is_open = False
        self._on_change = on_change

    def try_enter(self) -> Permit | None:
        """Take a permit, or None: somebody else's trigger is at it, or the worker is full or closed."""
        with self.lock:
            if not self._has_room():
                return None
            self.slots_taken += 1
            self.shares += 1
        self.changed()
        return Permit(self)

    @property
    def is_open(self) -> bool:
        """Whether the worker takes work at all."""
        return self._is_open

    @property
    def free(self) -> int:
        """How many triggers would get a permit now, one after the other."""
        with self.lock:
            return self._free()

    @property
    def has_room(self) -> bool:
        """Whether a trigger would get a permit now."""
        with self.lock:
            return self._has_room()

    def resize(self, slots: int | None) -> None:
        """Take the pool's word for how many slots there are; None says nothing. Who is in stays."""
        with self.lock:
            if slots is None or slots == self.slots:
                return
            self.slots = slots
        self.changed()

    def open(self) -> None:
        """Let triggers in."""
        self._is_open = True
        self.changed()

    def close(self) -> None:
        """Let nobody in any more; who is in stays."""
        self._is_open = False
        self.changed()

    def changed(self) -> None:
        """Tell the listener."""
        self._on_change()

    def _has_room(self) -> bool:
        return self._free() > 0

    def _free(self) -> int:
        if not self._is_open:
            return 0
        most = self.slots + 1 if self._bound is None else min(self.slots + 1, self._bound)
        return max(0, min(self.slots - self.slots_taken, most - self.shares))
