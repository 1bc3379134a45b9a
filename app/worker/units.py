"""What lanes pass around: a row of a shard, and a run of it on a runtime."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.domain.rows import Row

if TYPE_CHECKING:
    from app.worker.places import Place
    from app.worker.shard import Shard
    from executors.base import BaseExecutor


@dataclass(slots=True, eq=False)
class Unit:
    """A row in hand, with what its runs have brought so far.

    `lot` is what rows have in common that may follow one another without the runtime loading anything. `doubts` counts
    runs that ended without an answer, `refusals` those that never began; `refused_since` is when these began, and
    `missing_since` when a runtime first said that it has no such model.
    """

    shard: "Shard"
    row: Row
    lot: Hashable = None
    sharing: "tuple[type[BaseExecutor], ...]" = ()
    """The kinds of executors that may put it into one request with others of its lot."""
    doubts: int = 0
    refusals: int = 0
    refused_since: float | None = None
    missing_since: float | None = None


@dataclass(slots=True, eq=False)
class Run:
    """A row that has a runtime's place. Without one (`place` None) nobody serves its model."""

    unit: Unit
    place: "Place | None"
    began_at: float = 0.0
    trial: int = 0
    """Its number as the one row that tries a broken runtime (app.worker.breaker); 0: it is none."""
    is_alone: bool = False
    has_begun: bool = False
    """Its shard counts its row as one that runs."""
    taken: int = 1
    """Rows that were taken for it."""
    more: Sequence[Unit] = ()
    """Rows that share this one's place and request that began."""

    @property
    def is_trial(self) -> bool:
        """Whether it tries a broken runtime."""
        return self.trial > 0

    @property
    def units(self) -> "list[Unit]":
        """Every row of it."""
        return [self.unit, *self.more]
