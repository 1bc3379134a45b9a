"""Everything at once, for a bounded number of steps: no error reaches a caller, and all is sound at the end."""

import random
import threading
from collections.abc import Callable

from app.domain.rowsets import RowSet
from app.services.context import Yard
from app.sweeps import batch_expiry, lease_expiry
from tests.interleaving import doing
from tests.yards import Controller, Machine, assert_sound, batch, cancel, later, machine, result_files, validated

STEPS = 25


def work(yard: Yard, one: Machine, chance: random.Random) -> None:
    """Claim, hand in rows in any order, give back, fail, end, beat."""
    mine: dict[int, tuple[str, RowSet]] = {}
    for _ in range(STEPS):
        kind = chance.choice(["claim", "claim", "rows", "rows", "rows", "release", "fail", "beat"])
        if kind == "claim":
            answer = one.claim(want=chance.choice([1, 8]))
            for grant in answer.grants:
                left = RowSet.span(grant.first_row, grant.rows) - RowSet.parse(grant.done)
                mine[grant.lease_id] = (answer.batch.id if answer.batch else "", left)
        elif kind == "beat":
            one.beat(*mine)
        elif mine:
            lease_id = chance.choice(sorted(mine))
            batch_id, left = mine[lease_id]
            if kind == "rows":
                rows = chance.sample(sorted(left), chance.randint(0, len(left)))
                left = left - RowSet.of(rows)
                found = one.hand_in(batch_id, {lease_id: rows} if rows else {}, ends=[] if left else [lease_id])
                mine[lease_id] = (batch_id, left)
                assert set(found.parts.values()) <= {"stored", "stale"}
            elif kind == "release":
                one.release(lease_id)
            else:
                one.fail(lease_id)
            if kind != "rows" or not left:
                del mine[lease_id]


def test_many_hands_leave_everything_sound(yard: Yard) -> None:
    batches = [validated(yard, rows=40) for _ in range(3)]
    machines = [machine(yard, f"worker-{n}", slots=5) for n in range(4)]
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            later(yard, 40)
            lease_expiry.run_once(yard, 100)
            batch_expiry.run_once(yard, 100)

    hands: list[Callable[[], None]] = [
        lambda one=one, n=n: work(yard, one, random.Random(n))  # type: ignore[misc]
        for n, one in enumerate(machines)
    ]
    workers = [doing(hand) for hand in [*hands, lambda: cancel(yard, batches[2])]]
    sweeper = doing(sweep)
    for doer in workers:
        doer.thread.join(60)
        doer.result()
    over.set()
    sweeper.result()
    assert_sound(yard)
    finish_all(yard, batches)


def finish_all(yard: Yard, batches: list[str]) -> None:
    """Whatever happened, everything comes to its end."""
    later(yard, 400)
    lease_expiry.run_once(yard, 1000)
    batch_expiry.run_once(yard, 100)
    last = machine(yard, "last", slots=50)
    while (answer := last.claim(want=1000)).batch is not None:
        for grant in answer.grants:
            last.finish(answer.batch.id, grant)
    Controller(yard).works()
    assert_sound(yard)
    for batch_id in batches:
        ended = batch(yard, batch_id)
        assert ended.state in {"completed", "cancelled"}
        output, errors = result_files(yard, batch_id)
        ids = [line["custom_id"] for line in output + errors]
        assert sorted(ids) == sorted(f"row-{n}" for n in range(40))
        assert len(output) == ended.completed
        assert ended.state == "cancelled" or ended.completed + (ended.failed or 0) == 40
