"""What GPU workers do in a machine of races, in any order and late; each rule says what has to come of it."""

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from app.domain.leases import LIVE, LeaseState
from app.domain.rowsets import RowSet
from app.domain.workers import Phase, WorkerState
from tests.race_floor import MAX_BATCHES, MOSTLY, Floor, Hand, bits, chosen, pick
from tests.race_rules import jump
from tests.yards import lease, worker

MOST_FROZEN = 2
"""Processes before the current ones that may come back; there are no more, or most calls would be theirs."""


class Workers(Floor):
    """The rules of workers."""

    def create(self, rows: int, is_bad: bool, window: str) -> None:
        """A user sends a batch."""
        raise NotImplementedError

    def do_all_duties(self) -> None:
        """A control worker does what there is."""
        raise NotImplementedError

    def _live(self, hand: Hand) -> list[int]:
        live = self.ledger.live()
        return [lease_id for lease_id in hand.known if lease_id in live]

    def _busy(self, which: int) -> Hand:
        """A process that mostly holds a lease: whoever meets at one is what this is about."""
        hand = self._hand(which)
        if which >= MOSTLY or self._live(hand):
            return hand
        for _ in range(2):
            self.claim(which, 4, is_lost=False)
            self.ledger.look()
            if self._live(self._hand(which)) or len(self.batches) >= MAX_BATCHES:
                break
            self.create(8, is_bad=False, window="24h")
            self.do_all_duties()
            self.ledger.look()
        return self._hand(which)

    def _lease_of(self, hand: Hand, of: int) -> int | None:
        """One of those that it ever knew of, and mostly a live one."""
        known = list(hand.known) if of >= MOSTLY else self._live(hand) or list(hand.known)
        return known[of % len(known)] if known else None

    @rule(which=pick, want=st.sampled_from([1, 4, 20]), is_lost=st.sampled_from([False, False, False, True]))
    def claim(self, which: int, want: int, is_lost: bool) -> None:
        """An answer that is lost leaves a ghost: leases that their worker does not know of."""
        hand = self._hand(which)
        if worker(self.yard, hand.machine.id).state != WorkerState.ACTIVE and self._is_current(hand) and want > 1:
            hand = self._started_again(hand, list(hand.known))
        running = next((batch_id for batch_id, _ in hand.known.values()), None)
        hand.last_claim = f"claim-{which}-{len(hand.known)}-{hand.sent}"
        hand.sent += 1
        before = worker(self.yard, hand.machine.id)
        with self._called(hand):
            answer = hand.machine.claim(want=want, running=running, request=hand.last_claim)
            if before.state != WorkerState.ACTIVE or before.phase != Phase.READY:
                assert answer.batch is None, f"a worker that is {before.state} was given work"
            for grant in answer.grants:
                assert answer.batch is not None
                assert grant.done == self._job(answer.batch.id, grant.number).done_rows
            if answer.batch is not None and not is_lost:
                hand.known |= {grant.lease_id: (answer.batch.id, grant) for grant in answer.grants}

    @rule(which=pick)
    def claim_again(self, which: int) -> None:
        """The same HTTP call once more: the leases it got, those that still live, and no further one."""
        hand = self._hand(which)
        if hand.last_claim is None:
            return
        before = self.history.leases()
        with self._called(hand):
            answer = hand.machine.claim(want=20, request=hand.last_claim)
            known = {lease_id for lease_id, found in before.items() if found.claim_request == hand.last_claim}
            if known:
                assert {grant.lease_id for grant in answer.grants} == {i for i in known if before[i].state in LIVE}
            if answer.batch is not None:
                hand.known |= {grant.lease_id: (answer.batch.id, grant) for grant in answer.grants}

    @rule(which=pick, of=pick, rows=bits, ends=st.booleans(), failed=st.sampled_from([False, False, True]))
    def hand_in(self, which: int, of: int, rows: int, ends: bool, failed: bool) -> None:
        """Any rows of a shard, done ones too, under any lease that the process ever knew."""
        hand = self._busy(which)
        if (lease_id := self._lease_of(hand, of)) is not None:
            self._hands_in(hand, lease_id, rows, ends=ends, failed=failed)

    def _hands_in(self, hand: Hand, lease_id: int, rows: int, *, ends: bool, failed: bool) -> None:
        batch_id, grant = hand.known[lease_id]
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

    @rule(which=pick, of=pick)
    def finish(self, which: int, of: int) -> None:
        """What most shards come to: all rows that were lacking, and the end."""
        hand = self._busy(which)
        if (lease_id := self._lease_of(hand, of)) is not None:
            self._finishes(hand, lease_id)

    def _finishes(self, hand: Hand, lease_id: int) -> None:
        batch_id, grant = hand.known[lease_id]
        was_live = lease(self.yard, lease_id).state in LIVE
        rest = list(
            RowSet.span(grant.first_row, grant.rows) - RowSet.parse(self._job(batch_id, grant.number).done_rows)
        )
        hand.sent += 1
        mark = f"{hand.machine.boot_id}-{hand.sent}"
        parts: dict[int, Collection[int]] = {lease_id: rest} if rest else {}
        for _ in range(2):
            answer = hand.machine.hand_in(
                batch_id, parts, ends=[lease_id], seq=hand.sent, answer=mark, request=f"end-{mark}"
            )
            assert answer.ends == {lease_id: "ended" if was_live else "stale"}
        if was_live:
            self.answers |= {(batch_id, row): mark for row in rest}

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
        hand = self._busy(which)
        if (lease_id := self._lease_of(hand, of)) is not None:
            self._fails(hand, lease_id)

    def _fails(self, hand: Hand, lease_id: int) -> None:
        is_live = lease(self.yard, lease_id).state in LIVE
        request = f"fail-{hand.machine.boot_id}-{hand.sent}"
        hand.sent += 1
        for _ in range(2):
            found = hand.machine.fail(lease_id, request=request).leases
            assert found == {lease_id: "ended" if is_live else "stale"}
        if is_live:
            self.ledger.failed(lease_id)

    @rule(
        which=pick,
        mask=bits,
        unstarted=bits,
        phase=st.sampled_from([*[Phase.READY] * 6, Phase.DRAINING, Phase.SETUP]),
        after=st.sampled_from([0, 10, 100]),
    )
    def beat(self, which: int, mask: int, unstarted: int, phase: Phase, after: int) -> None:
        hand = self._busy(which)
        self.ledger.postponed(jump(self.yard, after))
        self._beats(hand, chosen(hand.known, mask), unstarted, phase)

    def _beats(self, hand: Hand, listed: list[int], unstarted: int, phase: Phase) -> None:
        before = self.history.leases()
        self.ledger.may_renew(listed)
        with self._called(hand):
            answer = hand.machine.beat(*listed, unstarted=chosen(listed, unstarted), phase=phase)
            words = {"held": "renewed", "stopping": "stop"}
            assert answer.leases == {i: words.get(before[i].state, "stale") for i in listed}
            end = self.yard.timing.lease_end(self.ledger.now())
            for lease_id, then in before.items():
                if then.worker_id == hand.machine.id and then.state in LIVE:
                    self._was_beaten(then, lease(self.yard, lease_id), is_listed=lease_id in listed, end=end)

    def _was_beaten(self, before: Any, after: Any, *, is_listed: bool, end: Any) -> None:
        """A held lease that is listed is renewed; one that is not is a ghost the second time running (PROTOCOL 2)."""
        if is_listed and before.state == LeaseState.HELD:
            assert after.state == LeaseState.HELD
            assert abs((after.expires_at - end).total_seconds()) < 5, "a renewal is for the toleration, from now"
            assert after.missed_beats == 0
        elif before.state == LeaseState.HELD and after.state != before.state:
            assert (after.state, before.missed_beats) == (LeaseState.RELEASED, 1), "a ghost after one beat"
        else:
            assert after.state == before.state
            assert after.missed_beats < 2, "a ghost stays"

    @rule(which=pick, spooled=bits)
    def bye(self, which: int, spooled: int) -> None:
        hand = self._hand(which)
        live = self.ledger.live().keys()
        with self._called(hand):
            hand.machine.bye(spooled=chosen(hand.known, spooled))
            assert worker(self.yard, hand.machine.id).state == WorkerState.GONE
            assert self.ledger.live().keys() == live, "the sweep ends leases, not the goodbye"

    @rule(which=pick)
    def drain(self, which: int) -> None:
        """What a worker does at SIGTERM."""
        hand = self._hand(which)
        self._beats(hand, list(hand.known), 0, Phase.DRAINING)
        with self._called(hand):
            if hand.known:
                hand.machine.release(*hand.known)
            hand.machine.bye()

    @rule(which=pick, held=bits)
    def restart(self, which: int, held: int) -> None:
        hand = self._busy(which)
        self._started_again(hand, chosen(hand.known, held))

    def _started_again(self, hand: Hand, kept: list[int]) -> Hand:
        """The same install, a new boot. The process before stays in the hands: it may be thawed later."""
        before = {i: found for i, found in self.ledger.live().items() if found.worker_id == hand.machine.id}
        again = Hand(hand.machine.restarted())
        self.ledger.may_renew(kept)
        welcome = again.machine.hello(held=kept)
        words = {"held": "renewed", "stopping": "stop"}
        assert welcome.leases == {i: words[before[i].state] if i in before else "stale" for i in kept}
        left = {i: found.state for i, found in self.ledger.live().items() if found.worker_id == hand.machine.id}
        assert left == {i: before[i].state for i in kept if i in before}, "what it does not hold ends at once (R-25)"
        again.known = {i: hand.known[i] for i in kept}
        again.sent = hand.sent + 1000
        self.hands.append(again)
        frozen = [other for other in self.hands if not self._is_current(other)]
        for other in frozen[:-MOST_FROZEN]:
            self.hands.remove(other)
        self._beats(again, kept, 0, Phase.READY)
        return again
