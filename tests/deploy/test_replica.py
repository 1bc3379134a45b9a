"""Replicas of a worker, which share an environment and a volume: each is somebody of its own, and stays it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "replica.py"
TELL = """
import json, os, sys
folder = os.path.basename(os.environ["GPUYARD_STATE_DIR"])
print(json.dumps([folder, os.environ.get("GPUYARD_WORKER_NAME")]), flush=True)
sys.stdin.read()
"""
Replica = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[Replica, list[str]]]]:
    """Start a replica whose command tells who it is and then waits; all end with the test."""
    with ExitStack() as stack:

        def begin(**more: str) -> tuple[Replica, list[str]]:
            replica = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(SCRIPT), sys.executable, "-c", TELL],
                    env=os.environ | {"GPUYARD_STATE_DIR": str(tmp_path / "volume" / "worker"), **more},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(replica.kill)
            assert replica.stdout is not None
            return replica, json.loads(replica.stdout.readline())

        yield begin


def test_each_has_a_name_and_a_folder_and_who_comes_back_has_those_that_are_free(
    start: Callable[..., tuple[Replica, list[str]]],
) -> None:
    named = {"GPUYARD_WORKER_NAME": "compose-cpu"}
    first, told = start(**named)
    assert told == ["worker", "compose-cpu"]
    assert start(**named)[1] == ["worker-2", "compose-cpu-2"]
    assert start(**named)[1] == ["worker-3", "compose-cpu-3"]
    first.kill()
    first.wait(30)
    assert start(**named)[1] == ["worker", "compose-cpu"]


def test_one_without_a_name_is_given_none(start: Callable[..., tuple[Replica, list[str]]]) -> None:
    start()
    assert start()[1] == ["worker-2", None]
