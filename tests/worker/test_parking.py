"""A share whose rows wait for their model: it has given its slot on, and is still the only one of its batch."""

from collections.abc import Callable

from app.worker.agent import Agent
from tests.fakes.control_plane import FakeControlPlane, rows
from tests.fakes.pulling_executor import PullingExecutor


def test_more_shards_of_its_batch_join_it(plane: FakeControlPlane, start_agent: Callable[..., Agent]) -> None:
    runtime = PullingExecutor()
    runtime.let_all()
    plane.give_batch(list(rows(12)), shard_rows=4)
    agent = start_agent([runtime], pull_models=True)
    runtime.wait(lambda: runtime.pulling == ["fake"])
    plane.wait(lambda: len(plane.leases) >= 2)
    assert len(agent._shares.all()) == 1
    runtime.step(None)
    plane.wait(lambda: len(plane.stored) == 12 and set(plane.states().values()) == {"reported"})
    assert sorted(runtime.started) == list(range(12))


def test_a_model_without_room_costs_no_try_at_first_and_one_when_its_shard_comes_back(
    plane: FakeControlPlane, start_agent: Callable[..., Agent]
) -> None:
    """Another worker may have room. Where none has, the shard comes back, and is to end."""
    runtime = PullingExecutor()
    runtime.let_all()
    plane.give_batch(list(rows(4)), shard_rows=4)
    start_agent([runtime], pull_models=True)
    runtime.step((0, 10**15))
    plane.wait(lambda: "failed" in plane.states().values())
    assert list(plane.states().values())[:2] == ["released", "failed"]
    assert runtime.pulling == ["fake"]
