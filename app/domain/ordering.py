"""In which order the batches of a pool get their turn (DESIGN 7): priority, deadline, fairness of groups, age."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Turn:
    """What of a batch decides its turn. `rank` is 9 - priority; `seq` counts batches as they were created.

    `live` counts its own live leases, for a batch that has no group.
    """

    batch_id: str
    rank: int
    expires_at: datetime
    group: str | None
    seq: int
    live: int = 0

    @property
    def urgency(self) -> tuple[int, int]:
        """Rank and deadline. Deadlines within one minute are equal, or age alone would decide between groups."""
        return self.rank, int(self.expires_at.timestamp() // 60)


def in_order(turns: Sequence[Turn], live_by_group: Mapping[str, int]) -> list[Turn]:
    """Sort: urgency first, then the group with the fewest live jobs, then age. A batch without a group is its own."""

    def live(turn: Turn) -> int:
        return turn.live if turn.group is None else live_by_group.get(turn.group, 0)

    return sorted(turns, key=lambda turn: (*turn.urgency, live(turn), turn.seq))


def must_yield(running: Turn, first: Turn) -> bool:
    """Tell whether a worker that runs `running` should let go of it for `first`: only for more urgency."""
    return first.batch_id != running.batch_id and first.urgency < running.urgency
