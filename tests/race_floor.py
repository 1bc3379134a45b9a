"""What all rules of a machine of races work on: one yard, its batches, and those who work in it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from app.domain.errors import Conflict
from app.schemas.claims import Grant
from app.services import control
from app.services.context import Yard
from tests.race_ledger import Ledger
from tests.race_rules import History
from tests.yards import Controller, Machine, shards, worker

MAX_BATCHES = 8
MOSTLY = 6
pick = st.integers(0, MOSTLY + 1)
"""Chooses one of however many there are."""
bits = st.sampled_from([15, 15, 15, 15, *range(15)])
"""Chooses a subset, often all."""


def chosen(values: Mapping[int, Any] | list[Any], mask: int) -> list[Any]:
    return [value for position, value in enumerate(values) if mask >> (position % 4) & 1]


@dataclass
class Hand:
    """A worker's process, and the leases it believes in. A superseded one stays, and may wake up."""

    machine: Machine
    known: dict[int, tuple[str, Grant]] = field(default_factory=dict)
    last_claim: str | None = None
    last_hand_in: Callable[[], Any] | None = None
    sent: int = 0


class Floor(RuleBasedStateMachine):
    """`make_yard` gives an empty yard, and `close` takes it back."""

    def __init__(self, make_yard: Callable[[], Yard], close: Callable[[Yard], None]) -> None:
        super().__init__()
        self.yard = make_yard()
        self._close = close
        self.batches: list[str] = []
        self.rows: dict[str, int] = {}
        self.answers: dict[tuple[str, int], str] = {}
        """What each stored row answered, by batch and row: the verdict `stored` is a promise."""
        self.hands: list[Hand] = []
        self.controllers = [Controller(self.yard, name) for name in ("control-1", "control-2")]
        self.duties: list[control.ControlGrant] = []
        self.history = History(self.yard)
        self.ledger = Ledger(self.yard)

    @contextmanager
    def _called(self, hand: Hand) -> Iterator[None]:
        """A call with a boot id: a superseded one is refused and changes nothing, not even when it was seen."""
        before = worker(self.yard, hand.machine.id)
        as_it_was = before.model_dump()
        leases = {i: found.model_dump() for i, found in self.history.leases().items()}
        refusal: Conflict | None = None
        try:
            yield
        except Conflict as error:
            refusal = error
        is_current = before.boot_id == hand.machine.boot_id
        assert (refusal.code if refusal is not None else None) == (None if is_current else "superseded")
        if refusal is not None:
            assert worker(self.yard, hand.machine.id).model_dump() == as_it_was
            assert {i: found.model_dump() for i, found in self.history.leases().items()} == leases

    def _batch(self, which: int) -> str:
        return self.batches[which % len(self.batches)]

    def _hand(self, which: int) -> Hand:
        """Mostly a process that is its worker's current one, now and then one that was superseded."""
        current = [hand for hand in self.hands if self._is_current(hand)]
        hands = self.hands if which >= MOSTLY else current
        return hands[which % len(hands)]

    def _is_current(self, hand: Hand) -> bool:
        return worker(self.yard, hand.machine.id).boot_id == hand.machine.boot_id

    def _job(self, batch_id: str, number: int) -> Any:
        return next(job for job in shards(self.yard, batch_id) if job.number == number)
