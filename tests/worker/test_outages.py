"""A control plane that is away for long: what a worker finished meanwhile is on disk, and gets there in the end."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.rowsets import RowSet
from app.schemas.segments import HandInHeader, Part
from app.schemas.wire import UsageCounts
from app.worker import outbox, settler, share
from app.worker.agent import Agent
from app.worker.spool import Spool, SpoolKind
from tests.e2e.yard import until
from tests.fakes.control_plane import Answer, FakeControlPlane, refusal, rows
from tests.fakes.plane_answers import Hang
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]
AWAY = [Answer(503)] * 1000


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (outbox, settler):
        monkeypatch.setattr(module, "TRY_SECONDS", 0.1)


def spooled(spool: Path) -> set[int]:
    """The rows that lie in the spool."""
    heads = [path.read_bytes().partition(b"\n")[0] for path in spool.glob("*.handin")]
    parts = [part for head in heads for part in HandInHeader.model_validate_json(head).parts]
    return {row for part in parts for row in RowSet.parse(part.rows)}


def come_back(plane: FakeControlPlane) -> None:
    with plane.changed:
        plane._script.clear()


def test_each_row_that_finishes_meanwhile_is_spooled_and_not_only_the_first(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path
) -> None:
    """A `kill -9` then costs what the last seconds finished, however long the outage was."""
    plane.next("results", *AWAY)
    plane.give_batch(list(rows(4)))
    start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    for row in range(3):
        runtime.let(row)
        until(lambda: spooled(tmp_path / "state" / "spool") == set(range(row + 1)), f"row {row} is spooled")  # noqa: B023 - now
    runtime.let(3)
    come_back(plane)
    plane.wait(lambda: plane.states() == {1: "reported"})
    assert [json.loads(line)["custom_id"] for _, line in sorted(plane.stored.items())] == [f"row-{n}" for n in range(4)]
    until(lambda: not list((tmp_path / "state" / "spool").iterdir()), "the spool is empty")


def test_a_hello_names_the_leases_whose_rows_could_not_be_handed_in(
    plane: FakeControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    """What the API breaks on lets the worker start; its leases do not end with that, so it can still be taken."""
    folder = tmp_path / "state" / "spool"
    folder.mkdir(parents=True)
    part = Part(lease_id=7, seq=1, rows="0", completed=1, failed=0, usage=UsageCounts(), length=2)
    header = HandInHeader(worker_id="wrk_1", batch_id="batch_1", parts=[part])
    Spool(folder).write(SpoolKind.HAND_IN, header.model_dump_json().encode() + b"\n{}")
    plane.refuses = lambda call: Answer(500) if call.route == "results" else None
    start_agent()
    assert [call.body["held"] for call in plane.called("register")] == [[7]]


@pytest.mark.parametrize("route", ["results", "release"])
def test_each_row_that_finishes_while_a_call_hangs_is_spooled(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path, route: str
) -> None:
    """Whichever call it is: a service that is silent answers none for half a minute, and the worker may be killed."""
    answered = threading.Event()
    plane.next(route, Hang(answered))
    plane.give_batch(list(rows(8)), shard_rows=4)
    agent = start_agent(max_concurrent_prompts=8)
    runtime.wait(lambda: len(runtime.running) == 8)
    if route == "release":
        agent._shares.held.stop([1])
    else:
        runtime.let(4)
    plane.wait(lambda: plane.called(route))
    for row in (5, 6, 7):
        runtime.let(row)
        until(lambda: row in spooled(tmp_path / "state" / "spool"), f"row {row} is spooled")  # noqa: B023 - now
    answered.set()
    runtime.let_all()
    plane.wait(lambda: set(plane.stored) == set(range(8)))


def test_the_last_report_of_a_share_leaves_no_row_that_is_not_handed_in(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """A-05: also of a share that is shorter than the interval, and where the first try gets no answer."""
    plane.next("progress", Answer(503))
    plane.give_batch(list(rows(4)))
    runtime.let_all()
    start_agent(progress_interval_seconds=600.0)
    plane.wait(lambda: len(plane.called("progress")) == 2)
    assert plane.states() == {1: "reported"}
    last = plane.called("progress")[-1].body
    assert (last["batch_id"], last["completed"], last["failed"]) == ("batch_1", 0, 0)


def test_what_was_finished_before_a_lease_was_given_up_is_taken_while_that_lease_lives(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path
) -> None:
    plane.timing |= {"self_stop_seconds": 2.0}
    plane.give_batch(list(rows(4)))
    plane.next("results", *AWAY)
    plane.next("heartbeat", None, *AWAY)
    start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    for row in range(3):
        runtime.let(row)
        until(lambda: row in spooled(tmp_path / "state" / "spool"), f"row {row} is spooled")  # noqa: B023 - now
    runtime.wait(lambda: runtime.cut == [3])
    come_back(plane)
    plane.wait(lambda: set(plane.stored) == {0, 1, 2})


def test_a_claim_is_not_tried_for_so_long_that_what_it_brings_is_over_at_once(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """The clock of a lease begins when its claim was first sent: perhaps it was granted then."""
    plane.timing |= {"self_stop_seconds": 2.0}
    plane.next("claim", *AWAY)
    plane.give_batch(list(rows(4)))
    agent = start_agent()
    plane.wait(lambda: plane.called("claim"))
    first = plane.called("claim")[0].body["request_id"]
    plane.wait(lambda: plane.called("claim")[-1].body["request_id"] != first, 2.0)
    come_back(plane)
    runtime.let_all()
    plane.wait(lambda: len(plane.stored) == 4)
    assert agent.exit_code == 0
    assert runtime.cut == []


ASKED_FOR_PEACE = [Answer(503, headers={"retry-after": "60"})] * 10_000
FEW = 5
"""Calls in a third of a second. Who does not wait makes hundreds."""


def test_a_control_plane_that_asks_for_peace_is_not_sent_a_hand_in_again_and_again(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "TRY_SECONDS", 1.0)
    plane.next("results", *ASKED_FOR_PEACE)
    plane.give_batch(list(rows(4)))
    runtime.let_all()
    start_agent()
    # The second call shows that the answer to the first was read.
    plane.never(lambda: len(plane.called("results")) > FEW, 0.3, after=lambda: len(plane.called("results")) > 1)
    come_back(plane)
    plane.wait(lambda: plane.states() == {1: "reported"})


def test_a_control_plane_that_asks_for_peace_is_not_asked_for_shards_again_and_again(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while rows start: each may be the one after which a claim is due."""
    monkeypatch.setattr(share, "LONGEST_PAUSE_SECONDS", 1.0)
    plane.give_batch(list(rows(100)), shard_rows=16)
    plane.next("claim", None, *ASKED_FOR_PEACE)
    start_agent()
    runtime.let(*range(8))
    plane.wait(lambda: len(plane.called("claim")) > 2)  # so the answer to the one before was read
    runtime.let(*range(8, 12))
    plane.never(lambda: len(plane.called("claim")) > FEW, 0.3, after=lambda: len(runtime.started) == 16)


def test_a_failure_that_nobody_answers_is_left_to_the_spool_once(
    plane: FakeControlPlane, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that gives up in the middle of a call takes one more turn."""
    agents: list[Agent] = []

    def unanswered(_call: object) -> None:
        for one in agents[0]._shares.all():
            one.give_up()
        raise ConnectionError("it has gone away")

    monkeypatch.setattr(plane, "_report_failure", unanswered)
    agents.append(start_agent())
    plane.next("content", Answer(404))
    plane.give_batch(list(rows(4)))
    agents[0].ring()
    plane.wait(lambda: len(plane.called("report-failure")) > 1)
    assert agents[0]._shares.wait_none(30)
    assert len(agents[0]._own.spool._orphans) == 1


def test_a_dismissal_is_heard_with_the_progress_too(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    plane.timing |= {"renew_seconds": 60.0}
    plane.next("progress", refusal(401))
    plane.give_batch(list(rows(4)))
    agent = start_agent(kill_after_seconds=1.0, progress_interval_seconds=1e-6)
    assert agent.join(30)
    assert agent.exit_code == 1
