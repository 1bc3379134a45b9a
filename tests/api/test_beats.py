"""Beats that come while others are being taken are taken together, and each is answered after its commit."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import event

from app.api.beats import Beats
from app.db import locks
from app.db.store import Store
from app.domain.errors import Conflict
from app.domain.workers import Phase
from app.schemas.workers import Heartbeat, HeartbeatAnswer
from app.services.context import Yard
from app.services.heartbeats import Beat
from tests.yards import Machine, lease, machine, new_yard, validated

SECONDS = 30.0


@pytest.fixture
def yard(store: Store, tmp_path: Path) -> Yard:
    return new_yard(store, tmp_path / "blobs")


def beat_of(one: Machine, *listed: int, **said: object) -> Beat:
    fields = {"boot_id": one.boot_id, "phase": Phase.READY, "leases": list(listed)} | said
    return Beat(one.caller, one.id, Heartbeat.model_construct(**fields))


async def taken_behind(yard: Yard, first: Beat, *others: Beat) -> list[HeartbeatAnswer | BaseException]:
    """Have `others` come while the database is busy with `first`."""
    beats = Beats(yard)
    with yard.store.begin() as session:
        locks.worker(session, first.worker_id)
        waiting = [asyncio.ensure_future(beats.take(first))]
        await asyncio.sleep(0)  # it is on its way
        await asyncio.sleep(0)
        waiting += [asyncio.ensure_future(beats.take(beat)) for beat in others]
        await asyncio.wait(waiting, timeout=0.1)
        assert not any(answer.done() for answer in waiting)
    return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), SECONDS)


def test_those_that_wait_share_their_transactions(yard: Yard) -> None:
    validated(yard, rows=16)
    crew = [machine(yard, f"worker-{n}") for n in range(5)]
    held = {one.id: one.claim().grants[0].lease_id for one in crew[:4]}
    commits: list[object] = []
    event.listen(yard.store.engine, "commit", commits.append)
    answers = asyncio.run(taken_behind(yard, *(beat_of(one, held.get(one.id, 1)) for one in crew)))
    assert len(commits) == 1 + 2 + 2  # the one that was in the way, and two for each group
    assert [answer.leases for answer in answers if isinstance(answer, HeartbeatAnswer)] == [
        {held.get(one.id, 1): "renewed" if one.id in held else "stale"} for one in crew
    ]
    assert len({lease(yard, lease_id).renewed_at for lease_id in list(held.values())[1:]}) == 1


def test_a_worker_whose_beats_overlap_is_answered_one_after_the_other(yard: Yard) -> None:
    one, two = machine(yard, "one"), machine(yard, "two")
    answers = asyncio.run(taken_behind(yard, beat_of(two), beat_of(one), beat_of(one), beat_of(two)))
    assert [type(answer) for answer in answers] == [HeartbeatAnswer] * 4


def test_one_that_the_database_does_not_take_costs_the_others_nothing(yard: Yard) -> None:
    crew = [machine(yard, f"worker-{n}") for n in range(4)]
    odd = beat_of(crew[1], activity=object())
    refused = beat_of(crew[2], boot_id="other")
    answers = asyncio.run(taken_behind(yard, beat_of(crew[0]), odd, refused, beat_of(crew[3])))
    kinds = [type(answer) for answer in answers]
    assert (kinds[0], kinds[2], kinds[3]) == (HeartbeatAnswer, Conflict, HeartbeatAnswer)
    assert isinstance(answers[1], Exception)
