"""Rows a second at one number in flight, measured in two ways that are wrong at different times (R-17)."""

from dataclasses import dataclass

LESS = 0.8


@dataclass(frozen=True)
class Throughput:
    """`counted` at the end of a window, and told `by_times`: so many in flight, each for so long (Little's law).

    A stall of a moment makes the count too low, and the count of what had piled up too high; half of the rows did not
    meet it, and their median tells nothing of it. `by_times` is None where too few rows began and ended in the window.
    """

    counted: float
    by_times: float | None = None

    @property
    def at_most(self) -> float:
        """Give the larger figure."""
        return max(self.counted, self.by_times or 0.0)

    def sure_growth(self, before: "Throughput") -> float:
        """Give how many times as much was counted, or less where the rows' times tell of less than half of the gain."""
        growth = self.counted / before.counted
        if self.by_times is None or before.by_times is None:
            return growth
        return min(growth, 2 * self.by_times / before.by_times - 1)

    def growth_at_most(self, before: "Throughput") -> float:
        """Give how many times as much this is at most. Below one, both ways tell of a loss."""
        growth = self.counted / before.counted
        if self.by_times is None or before.by_times is None:
            return growth
        return max(growth, self.by_times / before.by_times)

    def times_tell_of_less(self, before: "Throughput") -> bool:
        """Whether by the rows' times this is clearly less, whatever was counted: a stall may have hit the other."""
        return bool(self.by_times and before.by_times) and (self.by_times or 0.0) < LESS * (before.by_times or 0.0)

    def eased_towards(self, after: "Throughput") -> "Throughput":
        """Take a newer measure at the same number: at once when it is more, by a quarter of the way when it is less."""
        by_times = self.by_times
        if after.by_times is not None:
            by_times = _eased(by_times or after.by_times, after.by_times)
        return Throughput(_eased(self.counted, after.counted), by_times)


def _eased(before: float, after: float) -> float:
    return max(before, (3 * before + after) / 4)
