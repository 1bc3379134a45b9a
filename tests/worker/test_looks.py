"""Looking at runtimes: one that hangs reads as down, and keeps nobody from seeing the others."""

import threading
import time
from dataclasses import replace

from app.domain.runtimes import RuntimeFacts
from app.worker.breaker import Breaker
from app.worker.looks import Looks
from app.worker.places import Place
from tests.fakes.steered_executor import WAIT_SECONDS, SteeredExecutor


class Hanging(SteeredExecutor):
    """A runtime that answers its probe when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let_probe = threading.Event()
        self.probes = 0

    def probe(self) -> RuntimeFacts:
        self.probes += 1
        assert self.let_probe.wait(WAIT_SECONDS)
        return super().probe()


def place(executor: SteeredExecutor) -> Place:
    return Place(executor, Breaker(time.monotonic, 300.0))


def note(found: Place, facts: RuntimeFacts) -> bool:
    before, found.facts = found.facts, facts
    return before != facts


def test_one_that_hangs_is_down_with_its_reason_and_hides_no_other() -> None:
    hanging, fine = place(Hanging()), place(SteeredExecutor())
    looks = Looks(note, patience_seconds=0.1)
    assert looks.look_at([hanging, fine])
    assert fine.facts.alive
    assert not hanging.facts.alive
    assert "not come back within 0.1 s" in hanging.facts.reason
    assert isinstance(hanging.executor, Hanging)
    hanging.executor.let_probe.set()
    assert looks.look_at([hanging, fine])
    assert hanging.facts.alive


def test_one_that_hangs_is_not_asked_again_meanwhile() -> None:
    executor = Hanging()
    looks = Looks(note, patience_seconds=0.05)
    hanging = place(executor)
    for _ in range(3):
        looks.look_at([hanging])
    assert executor.probes == 1
    executor.let_probe.set()


def test_nothing_new_is_said_to_be_so() -> None:
    looks = Looks(note)
    fine = place(SteeredExecutor())
    assert looks.look_at([fine])
    assert not looks.look_at([fine])


def test_an_older_look_has_no_say_after_a_newer_one() -> None:
    class Older(Hanging):
        """Only its first probe hangs, and what it brings is old by then."""

        def probe(self) -> RuntimeFacts:
            first = not self.probes
            facts = super().probe() if first else SteeredExecutor.probe(self)
            return replace(facts, version="old" if first else "new")

    executor = Older()
    found = place(executor)
    looks = Looks(note, patience_seconds=0.05)
    looks.look_at([found])  # it hangs on
    newer = threading.Thread(target=looks.look_now, args=(found,))
    newer.start()
    newer.join(0.2)
    executor.let_probe.set()
    newer.join(WAIT_SECONDS)
    for thread in looks._under_way.values():
        thread.join(WAIT_SECONDS)
    assert found.facts.version == "new"
