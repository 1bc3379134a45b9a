"""Users, workers, control workers, sweeps and time, doing anything in any order: a machine for hypothesis.

Each rule is a call of a use case, as the API or a sweep makes it, and says what has to come of it. After every one of
them all invariants hold (`History`, `Ledger`); at the end whatever is left comes to its end. Two transactions at once
are not here: `test_interleavings` and `test_hammer`.
"""

from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from app.domain.errors import Refusal
from app.domain.retention import Kept
from app.domain.rowsets import RowSet
from app.domain.workers import Phase
from app.schemas.workers import Heartbeat
from app.services import control, heartbeats, presence
from app.sweeps import batch_expiry, heartbeat_sweeper, lease_expiry, requeue, retention
from tests.interleaving import Crash, crashing
from tests.race_floor import MAX_BATCHES, Hand, bits, chosen, pick
from tests.race_rules import assert_contract, end_all, ended, jump
from tests.race_workers import Workers
from tests.yards import (
    USER,
    assert_sound,
    batch,
    cancel,
    created,
    input_row,
    later,
    machine,
    shards,
)

EVENTS = ("cancel", "time", "silence", "restart", "goodbye")
ANSWERS = ("beats", "hands in", "finishes", "fails")
meetings = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(ANSWERS), st.booleans()), min_size=8, max_size=8)


class Races(Workers):
    """`make_yard` gives an empty yard, and `close` takes it back."""

    # --- users

    @initialize(rows=st.integers(5, 16), meetings=meetings)
    def begin(self, rows: int, meetings: list[tuple[str, str, bool]]) -> None:
        self.hands = [Hand(machine(self.yard, f"worker-{n}", slots=5)) for n in range(2)]
        self.create(rows, is_bad=False, window="24h")
        self.do_all_duties()
        for which in range(len(self.hands)):
            self.claim(which, 4, is_lost=False)
        self.any_day(self.hands[0])
        for event, answer, which in meetings:
            self.all_is_sound()
            self.meet(event, answer, int(which))

    def any_day(self, hand: Hand) -> None:
        """What chance hardly ever brings within so few steps: a lease missed once, an end too early, a part again."""
        lease_id = self._lease_of(hand, 0)
        assert lease_id is not None
        for listed in ([], [], [lease_id]):
            self.ledger.postponed(jump(self.yard, 10))
            self._beats(hand, listed, 0, Phase.READY)
            self.all_is_sound()
        self._hands_in(hand, lease_id, 1, ends=True, failed=False)
        self.all_is_sound()
        self.hand_in_again(0)

    @rule(event=st.sampled_from(EVENTS), answer=st.sampled_from(ANSWERS), which=pick)
    def meet(self, event: str, answer: str, which: int) -> None:
        """Something happens to a lease, and the worker that holds it has not heard of it."""
        hand = self._busy(which)
        lease_id = self._lease_of(hand, 0)
        if lease_id is None:
            return
        if event == "cancel":
            with suppress(Refusal):
                cancel(self.yard, hand.known[lease_id][0])
        elif event == "restart" and self._is_current(hand):
            self._started_again(hand, [])
        elif event == "goodbye" and self._is_current(hand):
            hand.machine.bye()
            self.sweep_leases(100)
        else:
            self.ledger.postponed(jump(self.yard, 301 if event == "silence" else 100))
            if event == "silence":
                self.sweep_leases(100)
        self.ledger.look()
        self._answers(hand, lease_id, answer)

    def _answers(self, hand: Hand, lease_id: int, how: str) -> None:
        if how == "beats":
            self._beats(hand, [lease_id], 0, Phase.READY)
        elif how == "hands in":
            self._hands_in(hand, lease_id, 15, ends=True, failed=False)
        elif how == "finishes":
            self._finishes(hand, lease_id)
        else:
            self._fails(hand, lease_id)

    @precondition(lambda self: len(self.batches) < MAX_BATCHES)
    @rule(
        rows=st.integers(1, 16),
        is_bad=st.sampled_from([False, False, False, True]),
        window=st.sampled_from(["1h", "24h"]),
    )
    def create(self, rows: int, is_bad: bool, window: str) -> None:
        content = b"".join(input_row(n) for n in range(rows)) + (b"{" if is_bad else b"")
        batch_id = created(self.yard, content=content, window=window)
        self.batches.append(batch_id)
        self.rows[batch_id] = rows

    @precondition(lambda self: self.batches)
    @rule(which=pick)
    def cancel(self, which: int) -> None:
        with suppress(Refusal):
            cancel(self.yard, self._batch(which))

    # --- control workers

    @rule(which=pick)
    def claim_duty(self, which: int) -> None:
        grant = self.controllers[which % 2].claims()
        if grant is not None:
            self.duties.append(grant)

    @precondition(lambda self: self.duties)
    @rule(which=pick, is_kept=st.booleans())
    def do_duty(self, which: int, is_kept: bool) -> None:
        """Also late, and again: a duty that is kept is done by one who does not know that it is done."""
        grant = self.duties[which % len(self.duties)]
        if not is_kept:
            self.duties.remove(grant)
        control.perform(self.yard, grant)

    @precondition(lambda self: self.duties)
    @rule(which=pick, at_statement=st.integers(1, 25))
    def crash_in_duty(self, which: int, at_statement: int) -> None:
        grant = self.duties.pop(which % len(self.duties))
        with suppress(Crash), crashing(self.yard.store, at_statement=at_statement):
            control.perform(self.yard, grant)

    @precondition(lambda self: self.duties)
    @rule(which=pick)
    def put_off_duty(self, which: int) -> None:
        control.put_off(self.yard, self.duties.pop(which % len(self.duties)), Exception("the disk is full"))

    @rule(which=pick, listed=bits)
    def control_beat(self, which: int, listed: int) -> None:
        one = self.controllers[which % 2]
        if one.id:
            ids = [grant.lease_id for grant in chosen(self.duties, listed)]
            self.ledger.may_renew(ids)
            beat = Heartbeat(boot_id=one.name, phase=Phase.READY, leases=ids)
            heartbeats.heartbeat(self.yard, USER, one.id, beat)

    @rule()
    def do_all_duties(self) -> None:
        self.controllers[0].works()

    # --- time and sweeps

    @rule(
        seconds=st.sampled_from([1, 5, 30, 30, 61, 100, 301, 3700, 86_500]),
        is_heard=st.sampled_from([True, True, True, False]),
    )
    def time_passes(self, seconds: int, is_heard: bool) -> None:
        if is_heard:
            self.ledger.postponed(jump(self.yard, seconds))
        else:
            later(self.yard, seconds, listening=False)

    @rule()
    def api_listens(self) -> None:
        self.ledger.postponed(presence.tick(self.yard))

    @rule(limit=st.sampled_from([1, 100]))
    def sweep_leases(self, limit: int) -> None:
        due, live = self.ledger.due(), self.ledger.live().keys()
        assert lease_expiry.run_once(self.yard, limit)["ended"] == min(limit, len(due))
        ended = live - self.ledger.live().keys()
        assert ended <= due, "leases ended whose time was not over"
        assert len(ended) == min(limit, len(due))

    @rule(limit=st.sampled_from([1, 100]))
    def sweep_batches(self, limit: int) -> None:
        batch_expiry.run_once(self.yard, limit)

    @rule()
    def sweep_the_rest(self) -> None:
        heartbeat_sweeper.run_once(self.yard, 100)
        requeue.run_once(self.yard, 100)
        retention.run_once(self.yard, 100)

    # --- what always holds

    @invariant()
    def all_is_sound(self) -> None:
        assert_sound(self.yard)
        self.history.look()
        self.ledger.look()
        for batch_id in self.batches:
            if self.history.kept[batch_id] is Kept.BATCH:
                continue  # its jobs lived their time
            stored = {row for job in shards(self.yard, batch_id) for row in RowSet.parse(job.done_rows)}
            assert stored == {row for of, row in self.answers if of == batch_id}

    def is_told_twice(self) -> None:
        """The window of a batch ends while a worker is at it, and then somebody cancels it: the first word stands."""
        self.create(4, is_bad=False, window="1h")
        self.do_all_duties()
        late = machine(self.yard, "the-late", slots=5)
        assert late.claim(want=4).batch is not None
        self.all_is_sound()
        self.ledger.postponed(jump(self.yard, 3700))
        self.sweep_batches(100)
        self.ledger.look()
        for batch_id in self.batches:
            if batch(self.yard, batch_id).outcome == "expired":
                with suppress(Refusal):
                    cancel(self.yard, batch_id)
                self.ledger.look()

    def teardown(self) -> None:
        """Whatever happened, every batch comes to its end, and its files outlive what they were written from."""
        try:
            self.is_told_twice()
            end_all(self.yard, self.controllers[0], self.answers)
            self._assert_contracts()
            jump(self.yard, 8 * 86_400)
            self.sweep_the_rest()
            self.all_is_sound()
            assert set(self.history.kept.values()) == {Kept.BATCH}
            self._assert_contracts()
        finally:
            self._close(self.yard)

    def _assert_contracts(self) -> None:
        for batch_id in self.batches:
            assert ended(self.yard, batch_id), batch(self.yard, batch_id)
            assert_contract(self.yard, batch_id, rows=self.rows[batch_id], answers=self.answers)
        self.all_is_sound()
