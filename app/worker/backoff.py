"""How long to wait after calls that nobody answered (BK-01 to BK-04, R-09)."""

import random
from collections.abc import Callable, Iterator

JITTER_SECONDS = 5.0


def backoff(first: float, longest: float, chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Give the waits after one failure, two, and so on: `b + rand(0,1) * min(b, 5)`, `b` doubling (R-09).

    The chance keeps a fleet that lost the control plane together from coming back in step (BK-02).
    """
    base = first
    while True:
        yield base + chance() * min(base, JITTER_SECONDS)
        base = min(2 * base, longest)


class Backoff:
    """The waits of one caller: they grow with each failure, and begin anew after a success (BK-03)."""

    def __init__(self, first: float, longest: float, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = longest
        self._chance = chance
        self.reset()

    def failed(self) -> float:
        """Give the seconds to wait now."""
        return next(self._waits)

    def reset(self) -> None:
        """Begin anew."""
        self._waits = backoff(self._first, self._longest, self._chance)
