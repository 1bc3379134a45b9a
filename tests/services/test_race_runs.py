"""Cancel, finalize, expire, report and claim, truly at once: threads let go by one barrier, over real sessions.

Each run draws a batch in some state, and who comes at the same moment; then everything has to come to a sound end
(OPENAI_CONTRACT 1.6). GPUYARD_TEST_RUNS is how many runs there are (`make test-races`: a thousand on each database).
"""

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.db.store import Store
from app.domain.errors import Refusal
from app.domain.rowsets import RowSet
from app.schemas.claims import Grant
from app.services.context import Yard
from app.sweeps import batch_expiry, lease_expiry
from tests.databases import Databases
from tests.interleaving import doing
from tests.migrated import migrate
from tests.race_rules import assert_contract, end_all, ended, jump
from tests.yards import Controller, Machine, assert_sound, batch, cancel, created, machine, new_yard

RUNS = int(os.environ.get("GPUYARD_TEST_RUNS", "10"))
RUNS_OF_A_DATABASE = 10
SECONDS = 60.0


@dataclass
class Run:
    """One batch, two workers of which one holds shards, and what each row that was stored has answered."""

    yard: Yard
    chance: random.Random
    rows: int = 0
    batch_id: str = ""
    answers: dict[tuple[str, int], str] = field(default_factory=dict)
    holder: Machine | None = None
    other: Machine | None = None
    grants: list[Grant] = field(default_factory=list)
    controllers: list[Controller] = field(default_factory=list)

    def set_up(self, number: int) -> None:
        yard, chance = self.yard, self.chance
        self.rows = chance.randint(1, 10)
        self.controllers = [Controller(yard, name).hello() for name in ("control-1", "control-2")]
        self.batch_id = created(yard, self.rows, window=chance.choice(["1h", "24h"]))
        self.holder = machine(yard, f"holder-{number}", slots=5)
        self.other = machine(yard, f"other-{number}", slots=5)
        if chance.random() < 0.9:
            self.controllers[0].works()
            for _ in range(chance.randint(0, 3)):
                self.grants += self.holder.claim(want=4, running=self.batch_id if self.grants else None).grants
            for grant in self.grants:
                if chance.random() < 0.5:
                    self.hand_in(self.holder, grant, whole=False)
        jump(yard, chance.choice([0, 0, 301, 3700]))
        self.other.beat()

    def hand_in(self, one: Machine, grant: Grant, *, whole: bool, times: int = 1) -> None:
        """Hand in what the grant lacks, or some of it; perhaps the same call twice."""
        left = RowSet.span(grant.first_row, grant.rows) - RowSet.parse(grant.done)
        rows = list(left) if whole else self.chance.sample(list(left), self.chance.randint(0, len(left)))
        rows = [row for row in rows if one is not self.holder or (self.batch_id, row) not in self.answers]
        mark, seq = f"{one.name}-{grant.lease_id}-{self.chance.random()}", self.chance.randint(1, 10**9)
        for _ in range(times):
            ends = [grant.lease_id] if whole else []
            if not rows and not ends:
                return
            parts = {grant.lease_id: rows} if rows else {}
            found = one.hand_in(self.batch_id, parts, ends=ends, seq=seq, answer=mark, request=mark)
            if found.parts.get(grant.lease_id) == "stored":
                for row in rows:
                    assert self.answers.setdefault((self.batch_id, row), mark) == mark, "a row was stored twice"

    # --- who may come

    def report(self) -> None:
        for grant in self.grants:
            self.hand_in(self.of(self.holder), grant, whole=True, times=self.chance.choice([1, 2]))

    def release(self) -> None:
        if self.grants:
            self.of(self.holder).release(*(grant.lease_id for grant in self.grants))

    def fail(self) -> None:
        for grant in self.grants:
            self.of(self.holder).fail(grant.lease_id)

    def beat(self) -> None:
        self.of(self.holder).beat(*(grant.lease_id for grant in self.grants[1:]))

    def restart(self) -> None:
        self.of(self.holder).restarted().hello(held=[grant.lease_id for grant in self.grants[:1]])

    def bye(self) -> None:
        self.of(self.holder).bye()

    def claim(self) -> None:
        one = self.of(self.other)
        for _ in range(3):
            answer = one.claim(want=self.chance.choice([1, 20]))
            for grant in answer.grants:
                if answer.batch is not None and answer.batch.id == self.batch_id:
                    self.hand_in(one, grant, whole=self.chance.random() < 0.8)

    def cancel(self) -> None:
        cancel(self.yard, self.batch_id)

    def expire(self) -> None:
        batch_expiry.run_once(self.yard, 10)

    def sweep(self) -> None:
        lease_expiry.run_once(self.yard, 10)

    def control_1(self) -> None:
        self.controllers[0].works()

    def control_2(self) -> None:
        self.controllers[1].works()

    def of(self, one: Machine | None) -> Machine:
        assert one is not None
        return one

    def race(self) -> None:
        """Let some of them go at one moment."""
        everybody: list[Callable[[], None]] = [
            *(self.report, self.report, self.release, self.fail, self.beat, self.restart, self.bye, self.claim),
            *(self.claim, self.cancel, self.cancel, self.expire, self.sweep, self.control_1, self.control_2),
        ]
        chosen = self.chance.sample(everybody, self.chance.randint(3, 7))
        gate = threading.Barrier(len(chosen))
        pauses = [self.chance.choice([0, 0, 0.001, 0.004]) for _ in chosen]

        def come(work: Callable[[], None], pause: float) -> None:
            gate.wait(SECONDS)
            time.sleep(pause)
            with suppress(Refusal):
                work()

        doers = [doing(lambda w=work, p=pause: come(w, p)) for work, pause in zip(chosen, pauses, strict=True)]  # type: ignore[misc]
        for doer in doers:
            doer.result()


@pytest.mark.timeout(120 + RUNS * 3)
def test_whoever_comes_at_once_the_batch_ends_and_keeps_its_promises(databases: Databases, tmp_path: Path) -> None:
    ends: set[str] = set()
    for first in range(0, RUNS, RUNS_OF_A_DATABASE):
        store = Store(databases.copy_of(migrate))
        yard = new_yard(store, tmp_path / f"blobs-{first}", max_losses=2, max_attempts=2)
        for number in range(first, min(first + RUNS_OF_A_DATABASE, RUNS)):
            run = Run(yard, random.Random(number))
            run.set_up(number)
            try:
                run.race()
                assert_sound(yard)
                end_all(yard, run.controllers[0], run.answers)
                assert ended(yard, run.batch_id), batch(yard, run.batch_id)
                assert_contract(yard, run.batch_id, rows=run.rows, answers=run.answers)
                assert_sound(yard)
            except BaseException as error:
                error.add_note(f"run {number}")
                raise
            ends.add(batch(yard, run.batch_id).state)
        store.close()
    assert ends == {"completed", "cancelled", "expired"}
