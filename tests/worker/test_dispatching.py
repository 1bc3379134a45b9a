"""Runtimes that fail in every way, as real servers: no row is lost to them, and no other row waits for them (B-14)."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.domain.rows import Row
from app.worker.agent import Agent
from executors.base import BaseExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.fakes.control_plane import FakeControlPlane
from tests.fakes.runtime_process import RuntimeProcess, runtime_server

__all__ = ["runtime_server"]

StartAgent = Callable[..., Agent]
StartRuntime = Callable[..., RuntimeProcess]


def lines(count: int, *, model: str = "m", first: int = 0, **orders: str) -> list[bytes]:
    """Make rows; `orders` names rows that get orders for the mock, as `row_3="hang=1"`."""
    made = []
    for number in range(first, first + count):
        body = {"model": model, "messages": [{"role": "user", "content": f"[[{number}]]"}]}
        if order := orders.get(f"row_{number}"):
            body["user"] = order
        line = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        made.append(json.dumps(line).encode())
    return made


def vllm(*runtimes: RuntimeProcess | str, kind: type[VLLMExecutor] = VLLMExecutor) -> list[BaseExecutor]:
    settings = ExecutorSettings(probe_seconds=1.0)
    return [kind(settings, found if isinstance(found, str) else found.url) for found in runtimes]


def port(runtime: RuntimeProcess) -> str:
    return runtime.url.rpartition(":")[2]


def outcomes(plane: FakeControlPlane) -> dict[int, Any]:
    """By row: None for a completed one, else its status or error code."""
    found: dict[int, Any] = {}
    for row, raw in plane.stored.items():
        line = json.loads(raw)
        response, error = line["response"], line["error"]
        found[row] = error["code"] if error else response["status_code"] if response["status_code"] >= 400 else None
    return found


def told_of(plane: FakeControlPlane) -> list[dict[str, Any]]:
    """What heartbeats said of runtimes."""
    return [info for call in plane.called("heartbeat") for info in call.body["runtimes"] or ()]


def finish(plane: FakeControlPlane, count: int, seconds: float = 40) -> dict[int, Any]:
    plane.wait(lambda: len(plane.stored) == count, seconds)
    return outcomes(plane)


@pytest.fixture
def until_healed(runtime_server: StartRuntime) -> Iterator[Callable[..., None]]:
    """Replace a sick runtime by a healthy one at the same address, after a while."""
    timers: list[threading.Timer] = []

    def heal(sick: RuntimeProcess, *, after: float) -> None:
        def replace() -> None:
            sick.kill()
            runtime_server("--models", "m", "--port", port(sick))

        timers.append(threading.Timer(after, replace))
        timers[-1].start()

    yield heal
    for timer in timers:
        timer.join(30)


class TestARuntimeThatIsAway:
    def test_in_mid_batch_costs_no_row(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        sick = runtime_server("--models", "m", "--latency-ms", 20)
        plane.give_batch(lines(200), shard_rows=50)
        start_agent(vllm(sick), row_timeout_seconds=1.0)
        plane.wait(lambda: len(plane.stored) >= 20)
        sick.kill()
        time.sleep(3.0)  # the fault itself: three row time-outs long
        assert set(outcomes(plane).values()) == {None}
        runtime_server("--models", "m", "--port", port(sick))
        assert set(finish(plane, 200).values()) == {None}

    def test_is_told_while_its_rows_fail_and_no_longer(
        self,
        plane: FakeControlPlane,
        start_agent: StartAgent,
        runtime_server: StartRuntime,
        until_healed: Callable[..., None],
    ) -> None:
        sick = runtime_server("--models", "m", "--fail-every", 1, "--fail-code", 503)
        plane.give_batch(lines(20), shard_rows=20)
        start_agent(vllm(sick), row_timeout_seconds=0.6)
        failing = "rows fail, one at a time is tried: it answered 503"
        plane.wait(lambda: any(info["reason"] == failing for info in told_of(plane)), 10)
        until_healed(sick, after=0.0)
        assert set(finish(plane, 20).values()) == {None}
        plane.wait(lambda: told_of(plane)[-1]["alive"] and told_of(plane)[-1]["reason"] is None, 10)

    @pytest.mark.parametrize(
        "trouble",
        [("--fail-every", 1, "--fail-code", 503), ("--fail-every", 1, "--fail-code", 401), ("--hang-every", 1)],
    )
    def test_though_its_probe_is_answered_costs_no_row_either(
        self,
        plane: FakeControlPlane,
        start_agent: StartAgent,
        runtime_server: StartRuntime,
        until_healed: Callable[..., None],
        trouble: tuple[object, ...],
    ) -> None:
        sick = runtime_server("--models", "m", *trouble)
        plane.give_batch(lines(60), shard_rows=20)
        start_agent(vllm(sick), row_timeout_seconds=0.6, max_concurrent_prompts=8)
        until_healed(sick, after=2.5)
        sick.wait_for(lambda stats: stats["requests"] >= 8)
        assert set(finish(plane, 60).values()) == {None}

    def test_is_tried_by_one_row_at_a_time(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        sick = runtime_server("--models", "m", "--hang-every", 1)
        plane.give_batch(lines(60), shard_rows=60)
        start_agent(vllm(sick), row_timeout_seconds=0.5, max_concurrent_prompts=8)
        sick.wait_for(lambda stats: stats["requests"] >= 8 and stats["in_flight"] == 0)
        sick.reset()
        stats = sick.wait_for(lambda stats: stats["requests"] >= 2, seconds=20)
        assert stats["max_in_flight"] == 1

    def test_holds_up_no_row_of_another_and_no_permit(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        sick = runtime_server("--models", "m")
        healthy = runtime_server("--models", "n")
        plane.give_batch([*lines(30), *lines(30, model="n", first=30)], shard_rows=60)
        agent = start_agent(vllm(sick, healthy), max_concurrent_prompts=2)
        sick.kill()
        plane.wait(lambda: set(range(30, 60)) <= set(plane.stored))
        plane.wait(lambda: agent._own.permits.in_use == 0 or len(plane.stored) == 60)
        runtime_server("--models", "m", "--port", port(sick))
        assert set(finish(plane, 60).values()) == {None}

    def test_holds_up_no_other_batch(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        sick, healthy = runtime_server("--models", "m", "--latency-ms", 50), runtime_server("--models", "n")
        plane.give_batch(lines(30), shard_rows=30)
        start_agent(vllm(sick, healthy))
        plane.wait(lambda: plane.stored)
        sick.kill()
        plane.give_batch(lines(10, model="n"), batch_id="batch_2")
        assert set(finish(plane, 10).values()) == {None}
        assert len(plane.rows_of["batch_1"]) < 30
        runtime_server("--models", "m", "--port", port(sick))
        plane.wait(lambda: len(plane.rows_of["batch_1"]) == 30)

    def test_sends_its_rows_to_another_that_serves_the_model(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        sick, healthy = (runtime_server("--models", "m", "--latency-ms", 5) for _ in range(2))
        plane.give_batch(lines(200), shard_rows=50)
        start_agent(vllm(sick, healthy), max_concurrent_prompts=8)
        plane.wait(lambda: plane.stored)
        sick.kill()
        assert set(finish(plane, 200).values()) == {None}

    def test_for_long_is_told_and_asked_for_again_when_it_is_back(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        sick = runtime_server("--models", "m", "--hang-every", 1)
        plane.give_batch(lines(20), shard_rows=5)
        start_agent(vllm(sick), row_timeout_seconds=0.5, runtime_down_seconds=1.0)
        plane.wait(lambda: {"released"} == set(plane.states().values()), 20)
        told = plane.wait(lambda: [info for info in told_of(plane) if not info["alive"]])
        assert "degraded" in told[0]["reason"]
        claims = len(plane.called("claim"))
        beats = len(plane.called("heartbeat"))
        plane.wait(lambda: len(plane.called("heartbeat")) > beats + 5)
        assert len(plane.called("claim")) == claims  # its shards are there to be had, and not for us
        sick.kill()
        plane.wait(lambda: any("refused" in (info["reason"] or "") for info in told_of(plane)))
        runtime_server("--models", "m", "--port", port(sick))
        assert set(finish(plane, 20).values()) == {None}


class TestARow:
    def test_that_is_refused_for_its_whole_time_while_others_are_answered_fails_with_that_answer(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        plane.give_batch(lines(40, row_3="status=503", row_4="status=429;times=3"), shard_rows=40)
        start_agent(vllm(runtime_server("--models", "m", "--latency-ms", 150)), row_timeout_seconds=3.0)
        assert {row: said for row, said in finish(plane, 40).items() if said} == {3: 503}

    def test_that_kills_its_runtime_fails_alone_and_its_neighbours_do_not(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        first = runtime_server("--models", "m", "--latency-ms", 30)
        running = [first]
        ended = threading.Event()

        def supervise() -> None:
            while not ended.wait(0.02):
                if running[-1].process.poll() is not None:
                    running.append(runtime_server("--models", "m", "--latency-ms", 30, "--port", port(first)))

        supervisor = threading.Thread(target=supervise)
        supervisor.start()
        try:
            plane.give_batch(lines(40, row_5="die=1"), shard_rows=40)
            start_agent(vllm(first), max_concurrent_prompts=8)
            found = finish(plane, 40)
        finally:
            ended.set()
            supervisor.join(30)
        assert {row: said for row, said in found.items() if said} == {5: "runtime_unavailable"}
        # Three runs, each the end of a server; nobody may have started one after the last of them. In each run the row
        # is sent again when a kept connection ends as it is used, which means nothing yet.
        assert [one.process.wait(10) for one in running[:3]] == [1, 1, 1]
        assert len(running) <= 7

    def test_that_hangs_alone_fails_and_the_others_do_not(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        plane.give_batch(lines(40, row_5="hang=1"), shard_rows=40)
        start_agent(vllm(runtime_server("--models", "m")), row_timeout_seconds=1.0)
        assert {row: said for row, said in finish(plane, 40).items() if said} == {5: "request_timeout"}

    def test_that_is_answered_500_runs_twice_and_no_oftener(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        runtime = runtime_server("--models", "m")
        plane.give_batch(lines(12, row_2="status=500", row_3="status=500;times=4"), shard_rows=12)
        start_agent(vllm(runtime))
        assert {row: said for row, said in finish(plane, 12).items() if said} == {2: 500}
        marks = runtime.marks()
        assert (marks["[[2]]"], marks["[[3]]"]) == (6, 5)


class Bounded(VLLMExecutor):
    """A runtime that works on two rows at once and says so."""

    def limit(self, row: Row) -> int | None:  # noqa: ARG002 - the same for all
        return 2


def test_a_runtimes_limit_is_never_exceeded(
    plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
) -> None:
    runtime = runtime_server("--models", "m", "--latency-ms", 5)
    plane.give_batch(lines(100), shard_rows=25)
    start_agent(vllm(runtime, kind=Bounded), max_concurrent_prompts=16)
    assert set(finish(plane, 100).values()) == {None}
    assert runtime.stats()["max_in_flight"] == 2


def test_eight_equal_runtimes_share_a_batch(
    plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
) -> None:
    runtimes = [runtime_server("--models", "m", "--latency-ms", 10) for _ in range(8)]
    plane.give_batch(lines(320), shard_rows=80)
    start_agent(vllm(*runtimes), max_concurrent_prompts=16)
    finish(plane, 320)
    done = [runtime.stats() for runtime in runtimes]
    assert all(20 <= stats["completed"] <= 60 for stats in done), done


class TestWhileRowsWaitForARuntime:
    def waiting(self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime) -> Agent:
        sick = runtime_server("--models", "m", "--latency-ms", 20)
        plane.give_batch(lines(100), shard_rows=100)  # all in hand: nothing is left to claim
        agent = start_agent(vllm(sick), drain_seconds=30.0)
        plane.wait(lambda: plane.stored)
        sick.kill()
        for place in agent._own.runtimes.places:
            plane.wait(lambda place=place: not place.breaker.is_closed)  # type: ignore[misc]
        return agent

    def test_a_drain_ends_at_once(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        agent = self.waiting(plane, start_agent, runtime_server)
        agent.on_signal()
        began = time.monotonic()
        assert agent.join(10)
        assert time.monotonic() - began < 5
        assert set(plane.states().values()) <= {"released", "reported"}
        assert set(outcomes(plane).values()) == {None}

    def test_a_stop_ends_at_once(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        agent = self.waiting(plane, start_agent, runtime_server)
        with plane.changed:
            for lease in plane.leases.values():
                lease.state = "stopping" if lease.state == "held" else lease.state
        agent.beat_now("batch_1")
        plane.wait(lambda: set(plane.states().values()) <= {"released", "reported"}, 5)
        assert agent._shares.wait_none(5)
