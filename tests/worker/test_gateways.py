"""What stands before a runtime answers in its place: no row is lost to it, and none waits for it without end (B-14)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.control_plane import FakeControlPlane
from tests.worker.test_dispatching import StartAgent, StartRuntime, finish, lines, runtime_server, until_healed, vllm

__all__ = ["runtime_server", "until_healed"]

HTML = "raw=<html>down for a moment</html>;type=text/html"


class TestAGateway:
    @pytest.mark.parametrize(
        "said",
        [
            f"status=408;{HTML}",
            f"status=530;{HTML}",
            f"status=403;{HTML}",
            "status=404;raw= ",
            "status=302;header=Location: /login",
            HTML,
            'raw={"choices":[]}',
            f"gzip=1;status=502;{HTML}",
        ],
    )
    def test_that_answers_for_a_while_from_the_first_row_on_costs_no_row(
        self,
        plane: FakeControlPlane,
        start_agent: StartAgent,
        runtime_server: StartRuntime,
        until_healed: Callable[..., None],
        said: str,
    ) -> None:
        sick = runtime_server("--models", "m", "--orders", said)
        plane.give_batch(lines(60), shard_rows=20)
        start_agent(vllm(sick), max_concurrent_prompts=8)
        sick.wait_for(lambda stats: stats["requests"] >= 4)
        until_healed(sick, after=2.5)
        assert set(finish(plane, 60).values()) == {None}

    @pytest.mark.parametrize(("said", "outcome"), [(f"status=403;{HTML}", 403), (HTML, "INTERNAL_ERROR")])
    def test_that_answers_nothing_else_is_believed_in_the_end(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime, said: str, outcome: Any
    ) -> None:
        sick = runtime_server("--models", "m", "--orders", said)
        plane.give_batch(lines(12), shard_rows=12)
        start_agent(vllm(sick), runtime_down_seconds=2.0)
        assert set(finish(plane, 12).values()) == {outcome}
        stored = json.loads(plane.stored[0])
        text = stored["error"] or stored["response"]["body"]["error"]
        assert "down for a moment" in text["message"]


class TestARow:
    def test_that_alone_is_answered_so_fails_and_the_others_do_not(
        self, plane: FakeControlPlane, start_agent: StartAgent, runtime_server: StartRuntime
    ) -> None:
        runtime = runtime_server("--models", "m", "--latency-ms", 50)
        orders = {
            "row_3": f"status=409;{HTML}",
            "row_5": HTML,
            "row_7": f"status=404;{HTML}",
            "row_9": f"{HTML};gzip=1",
        }
        plane.give_batch(lines(60, **orders), shard_rows=60)
        start_agent(vllm(runtime), runtime_down_seconds=2.0, max_concurrent_prompts=2)
        failed = {row: said for row, said in finish(plane, 60).items() if said}
        assert failed == {3: 409, 5: "INTERNAL_ERROR", 7: 404, 9: "INTERNAL_ERROR"}
        marks = runtime.marks()
        assert 1 < marks["[[3]]"] <= 5
        assert 1 < marks["[[5]]"] <= 5
