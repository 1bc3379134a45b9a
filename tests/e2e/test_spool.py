"""A worker killed with -9 at each step of a shard: it starts again, and no row is lost, doubled or run for nothing."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.schemas.segments import HandInHeader
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import PROMPTS, TIMING, Yard, until
from tests.fakes.gateway import Gateway, gateway

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

ROWS = PROMPTS
"""All of them are in flight at once; on a quiet machine they go home in one hand-in."""
HAND_INS = ("results", "upload-results")
FOR_LONG = "600"
"""Toleration: a restart on a busy machine must come before it."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    timing = TIMING | {"GPUYARD_TOLERATION_SECONDS": FOR_LONG, "GPUYARD_SEGMENT_SECONDS": "2"}
    with Yard(tmp_path_factory.mktemp("yard"), timing=timing) as yard:
        yield yard.start()


@pytest.fixture(scope="module")
def between(yard: Yard) -> Iterator[Gateway]:
    with gateway(yard.url) as found:
        yield found


class Victim:
    """The one worker, which is started again after each death, and batches of eight rows for it."""

    def __init__(self, yard: Yard, between: Gateway) -> None:
        self._yard = yard
        self._between = between
        self._start()

    def _start(self) -> None:
        self._yard.worker("victim", server_url=self._between.url)
        self._yard.until_present("victim")

    def forgets(self, name: str) -> None:
        """Another test begins; `name` is what its rows are called."""
        self._name = name
        self._between.forget()
        self._yard.runtime.reset()
        if not self._yard.workers["victim"].alive:
            self._start()

    @property
    def spool(self) -> list[Path]:
        return list((self._yard.folder / "workers" / "victim" / "spool").glob("*.handin"))

    def spooled_rows(self) -> int:
        """How many finished rows lie there; those of a file that went home just now are not counted."""
        found = 0
        for path in self.spool:
            with suppress(FileNotFoundError):
                header = HandInHeader.model_validate_json(path.read_bytes().partition(b"\n")[0])
                found += sum(part.completed + part.failed for part in header.parts)
        return found

    def submit(self, *, latency_ms: int = 50, rows: int = ROWS) -> Submitted:
        return self._yard.submit(marked(self._name, rows, f"latency_ms={latency_ms}"))

    def asked(self) -> int:
        """How many rows the runtime was asked for."""
        return int(self._yard.runtime.stats()["requests"])

    def dies_and_comes_back(self) -> None:
        self._yard.workers["victim"].kill()
        self._between.let_through()
        self._start()

    def ended(self, batch: Submitted, *, rows: int = ROWS) -> None:
        batch.ended(seconds=60)
        assert_each_row_once(batch, self._name, rows)
        until(lambda: self.spool == [], "the spool is empty")


@pytest.fixture(scope="module")
def only_worker(yard: Yard, between: Gateway) -> Victim:
    return Victim(yard, between)


@pytest.fixture
def victim(request: pytest.FixtureRequest, only_worker: Victim) -> Victim:
    only_worker.forgets(request.node.name.rpartition("_")[2])
    return only_worker


def test_killed_when_its_claim_was_claimed(victim: Victim, between: Gateway) -> None:
    between.hold("claim", after_the_answer=True)
    batch = victim.submit()
    until(lambda: between.answered["claim"], "the API has given it a lease")
    victim.dies_and_comes_back()
    victim.ended(batch)
    assert victim.asked() == ROWS


def test_killed_when_rows_are_running(victim: Victim) -> None:
    batch = victim.submit(latency_ms=3000)
    until(lambda: victim.asked() == ROWS, "all rows run")
    victim.dies_and_comes_back()
    victim.ended(batch)
    assert victim.asked() == 2 * ROWS


def test_killed_when_rows_are_finished(victim: Victim, yard: Yard) -> None:
    batch = victim.submit()
    until(lambda: yard.runtime.stats()["completed"] == ROWS, "all rows are answered")
    spooled = victim.spooled_rows()
    victim.dies_and_comes_back()
    victim.ended(batch)
    assert victim.asked() <= 2 * ROWS - spooled


def test_killed_when_its_hand_in_is_written(victim: Victim, between: Gateway) -> None:
    between.hold(*HAND_INS)
    batch = victim.submit()
    until(lambda: sum(between.arrived[route] for route in HAND_INS), "it wants to hand in")
    spooled = victim.spooled_rows()
    assert spooled > 0
    victim.dies_and_comes_back()
    victim.ended(batch)
    assert victim.asked() <= 2 * ROWS - spooled


def test_killed_when_its_hand_in_is_sent(victim: Victim, between: Gateway) -> None:
    """The API has stored it, and the worker never hears so: it sends it again, and it is known."""
    between.hold(*HAND_INS, after_the_answer=True)
    batch = victim.submit()
    until(lambda: sum(between.answered[route] for route in HAND_INS), "the API has taken the hand-in")
    spooled = victim.spooled_rows()
    assert spooled > 0
    victim.dies_and_comes_back()
    victim.ended(batch)
    assert victim.asked() <= 2 * ROWS - spooled


def test_killed_when_no_hand_in_was_answered_for_long(victim: Victim, yard: Yard, between: Gateway) -> None:
    """What finishes while a call hangs is spooled before that call ends, which may take half a minute."""
    between.hold(*HAND_INS)
    batch = victim.submit(rows=10 * ROWS)
    until(lambda: yard.runtime.stats()["completed"] == 10 * ROWS, "all rows are answered")
    until(lambda: victim.spooled_rows() == 10 * ROWS, "all of them are in the spool", seconds=10)
    victim.dies_and_comes_back()
    victim.ended(batch, rows=10 * ROWS)
    assert victim.asked() == 10 * ROWS


def test_killed_when_its_hand_in_is_answered(victim: Victim, yard: Yard) -> None:
    batch = victim.submit()
    batch.stored(ROWS)
    until(lambda: victim.spool == [], "the answer has come")
    victim.dies_and_comes_back()
    victim.ended(batch)
    assert victim.asked() == ROWS
