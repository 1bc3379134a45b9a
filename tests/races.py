"""Users, workers, control workers, sweeps and time, doing anything in any order: a machine for hypothesis.

Each rule is one call of a use case, as the API or a sweep makes it. After every one of them all invariants hold; at the
end whatever is left comes to its end. Two transactions at once are not here: `test_interleavings` and `test_hammer`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.domain.errors import Refusal
from app.domain.leases import LIVE
from app.domain.rowsets import RowSet
from app.domain.workers import Phase
from app.schemas.claims import Grant
from app.schemas.workers import Heartbeat
from app.services import control, workers
from app.services.context import Yard
from app.sweeps import batch_expiry, heartbeat_sweeper, lease_expiry, requeue, retention
from tests.interleaving import Crash, crashing
from tests.race_rules import History, assert_contract, end_all, ended, jump
from tests.yards import (
    USER,
    Controller,
    Machine,
    assert_sound,
    batch,
    cancel,
    created,
    input_row,
    later,
    lease,
    machine,
    shards,
)

MAX_BATCHES = 3
pick = st.integers(0, 5)
"""Chooses one of however many there are."""
bits = st.integers(0, 15)
"""Chooses a subset."""


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


class Races(RuleBasedStateMachine):
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

    # --- users

    @initialize(rows=st.integers(1, 9))
    def begin(self, rows: int) -> None:
        self.hands = [Hand(machine(self.yard, f"worker-{n}", slots=5)) for n in range(2)]
        self.create(rows, is_bad=False, window="24h")
        self.do_all_duties()
        for which in range(len(self.hands)):
            self.claim(which, 4, is_lost=False)

    @precondition(lambda self: len(self.batches) < MAX_BATCHES)
    @rule(
        rows=st.integers(1, 9),
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
        control.put_off(self.yard, self.duties.pop(which % len(self.duties)), "the disk is full")

    @rule(which=pick, listed=bits)
    def control_beat(self, which: int, listed: int) -> None:
        one = self.controllers[which % 2]
        if one.id:
            ids = [grant.lease_id for grant in chosen(self.duties, listed)]
            beat = Heartbeat(boot_id=one.name, phase=Phase.READY, leases=ids)
            workers.heartbeat(self.yard, USER, one.id, beat)

    @rule()
    def do_all_duties(self) -> None:
        self.controllers[0].works()

    # --- workers

    @rule(which=pick, want=st.sampled_from([1, 4, 20]), is_lost=st.sampled_from([False, False, False, True]))
    def claim(self, which: int, want: int, is_lost: bool) -> None:
        """An answer that is lost leaves a ghost: leases that their worker does not know of."""
        hand = self._hand(which)
        running = next((batch_id for batch_id, _ in hand.known.values()), None)
        hand.last_claim = f"claim-{which}-{len(hand.known)}-{hand.sent}"
        hand.sent += 1
        with suppress(Refusal):
            answer = hand.machine.claim(want=want, running=running, request=hand.last_claim)
            if answer.batch is not None and not is_lost:
                hand.known |= {grant.lease_id: (answer.batch.id, grant) for grant in answer.grants}

    @rule(which=pick)
    def claim_again(self, which: int) -> None:
        """The same HTTP call once more: the leases it got, those that still live, and no further one."""
        hand = self._hand(which)
        if hand.last_claim is None:
            return
        before = self.history.leases()
        with suppress(Refusal):
            answer = hand.machine.claim(want=20, request=hand.last_claim)
            known = {lease_id for lease_id, found in before.items() if found.claim_request == hand.last_claim}
            if known:
                assert {grant.lease_id for grant in answer.grants} == {i for i in known if before[i].state in LIVE}
            if answer.batch is not None:
                hand.known |= {grant.lease_id: (answer.batch.id, grant) for grant in answer.grants}

    @rule(which=pick, of=pick, rows=bits, ends=st.booleans(), failed=st.sampled_from([False, False, True]))
    def hand_in(self, which: int, of: int, rows: int, ends: bool, failed: bool) -> None:
        """Any rows of a shard, done ones too, under any lease that the process ever knew."""
        hand = self._hand(which)
        if not hand.known:
            return
        lease_id, (batch_id, grant) = list(hand.known.items())[of % len(hand.known)]
        sent = chosen(list(RowSet.span(grant.first_row, grant.rows)), rows or 15)
        before = lease(self.yard, lease_id)
        done = RowSet.parse(self._job(batch_id, grant.number).done_rows)
        hand.sent += 1
        mark, number = f"{hand.machine.boot_id}-{hand.sent}", hand.sent

        def call() -> Any:
            return hand.machine.hand_in(
                batch_id,
                {lease_id: sent},
                ends=[lease_id] if ends else [],
                seq=number,
                answer=mark,
                failed=failed,
                request=mark,
            )

        answer = call()
        if before.state not in LIVE:
            assert answer.parts == {lease_id: "stale"}
            assert not ends or answer.ends == {lease_id: "stale"}
            return
        is_new = done.isdisjoint(RowSet.of(sent))
        assert answer.parts == {lease_id: "stored" if is_new else "conflict"}
        if is_new:
            for row in sent:
                assert (batch_id, row) not in self.answers, "a row was stored twice"
                self.answers[batch_id, row] = mark
            hand.last_hand_in = call
        if ends:
            whole = len(done | (RowSet.of(sent) if is_new else RowSet())) == grant.rows
            assert answer.ends == {lease_id: "ended" if whole else "incomplete"}

    @rule(which=pick)
    def hand_in_again(self, which: int) -> None:
        """To the letter, however late: the rows are a duplicate, and an end gets the first one's answer."""
        hand = self._hand(which)
        if hand.last_hand_in is not None:
            answer = hand.last_hand_in()
            assert set(answer.parts.values()) == {"duplicate"}

    @rule(which=pick, mask=bits)
    def release(self, which: int, mask: int) -> None:
        hand = self._hand(which)
        if ids := chosen(hand.known, mask):
            before = {i: lease(self.yard, i).state in LIVE for i in ids}
            assert hand.machine.release(*ids).leases == {i: "ended" if live else "stale" for i, live in before.items()}

    @rule(which=pick, of=pick)
    def fail(self, which: int, of: int) -> None:
        hand = self._hand(which)
        if hand.known:
            lease_id = list(hand.known)[of % len(hand.known)]
            expected = "ended" if lease(self.yard, lease_id).state in LIVE else "stale"
            request = f"fail-{hand.sent}"
            hand.sent += 1
            assert hand.machine.fail(lease_id, request=request).leases == {lease_id: expected}
            assert hand.machine.fail(lease_id, request=request).leases == {lease_id: expected}

    @rule(
        which=pick,
        mask=bits,
        unstarted=bits,
        phase=st.sampled_from([Phase.READY, Phase.READY, Phase.DRAINING, Phase.SETUP]),
    )
    def beat(self, which: int, mask: int, unstarted: int, phase: Phase) -> None:
        hand = self._hand(which)
        listed = chosen(hand.known, mask)
        before = {i: lease(self.yard, i).state for i in listed}
        with suppress(Refusal):
            answer = hand.machine.beat(*listed, unstarted=chosen(listed, unstarted), phase=phase)
            words = {"held": "renewed", "stopping": "stop"}
            assert answer.leases == {i: words.get(state, "stale") for i, state in before.items()}

    @rule(which=pick, spooled=bits)
    def bye(self, which: int, spooled: int) -> None:
        hand = self._hand(which)
        with suppress(Refusal):
            hand.machine.bye(spooled=chosen(hand.known, spooled))

    @rule(which=pick)
    def drain(self, which: int) -> None:
        """What a worker does at SIGTERM."""
        hand = self._hand(which)
        with suppress(Refusal):
            hand.machine.beat(*hand.known, phase=Phase.DRAINING)
            if hand.known:
                hand.machine.release(*hand.known)
            hand.machine.bye()

    @precondition(lambda self: len(self.hands) < 5)
    @rule(which=pick, held=bits)
    def restart(self, which: int, held: int) -> None:
        """The same install, a new boot. The process before stays in the hands: it may be thawed later."""
        hand = self._hand(which)
        kept = chosen(hand.known, held)
        again = Hand(hand.machine.restarted())
        again.machine.hello(held=kept)
        again.known = {i: hand.known[i] for i in kept}
        again.sent = hand.sent + 1000
        self.hands.append(again)
        again.machine.beat(*kept)

    # --- time and sweeps

    @rule(
        seconds=st.sampled_from([1, 5, 30, 61, 61, 301, 301, 3700, 86_500]),
        is_heard=st.sampled_from([True, True, True, False]),
    )
    def time_passes(self, seconds: int, is_heard: bool) -> None:
        if is_heard:
            jump(self.yard, seconds)
        else:
            later(self.yard, seconds, listening=False)

    @rule(limit=st.sampled_from([1, 100]))
    def sweep_leases(self, limit: int) -> None:
        lease_expiry.run_once(self.yard, limit)

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
        for batch_id in self.batches:
            stored = {row for job in shards(self.yard, batch_id) for row in RowSet.parse(job.done_rows)}
            assert stored == {row for of, row in self.answers if of == batch_id}

    def teardown(self) -> None:
        """Whatever happened, every batch comes to its end."""
        try:
            end_all(self.yard, self.controllers[0], self.answers)
            for batch_id in self.batches:
                assert ended(self.yard, batch_id), batch(self.yard, batch_id)
                assert_contract(self.yard, batch_id, rows=self.rows[batch_id], answers=self.answers)
            self.all_is_sound()
        finally:
            self._close(self.yard)

    def _batch(self, which: int) -> str:
        return self.batches[which % len(self.batches)]

    def _hand(self, which: int) -> Hand:
        return self.hands[which % len(self.hands)]

    def _job(self, batch_id: str, number: int) -> Any:
        return next(job for job in shards(self.yard, batch_id) if job.number == number)
