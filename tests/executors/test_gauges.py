"""How many rows a server works on and lets wait, read out of its page of metrics (R-17)."""

from collections.abc import Callable

import pytest

from app.domain.runtimes import RuntimeLoad
from executors.gauges import read_load
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a{b} c"} 3.0
vllm:num_requests_running{engine="1",model_name="a{b} c"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a{b} c"} 1.0
vllm:num_requests_waiting{engine="1",model_name="a{b} c"} 1e+01
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
"""


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, RuntimeLoad(7, 11)),
        (VLLM.replace(b"vllm:", b"vllm_"), RuntimeLoad(7, 11)),
        (b"vllm:num_requests_running 2\nvllm:num_requests_waiting 0\n", RuntimeLoad(2, 0)),
        (b"llamacpp:requests_processing 4\r\nllamacpp:requests_deferred 1\r\n", RuntimeLoad(4, 1)),
        (b'sglang:num_queue_reqs{a="b"} 5.0\nsglang:num_running_reqs{a="b"} 6.0', RuntimeLoad(6, 5)),
        (b"tgi_queue_size 5\ntgi_batch_current_size 6\n", RuntimeLoad(6, 5)),
        (b"vllm:num_requests_running 2e-05 1700000000\nvllm:num_requests_waiting 0.\n", RuntimeLoad(0, 0)),
        (b"vllm:num_requests_running 1e400\nvllm:num_requests_waiting 0\n", None),
        (b"vllm:num_requests_running 1.2.3\nvllm:num_requests_waiting 4e\n", None),
        (b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n", None),
        (b"vllm:num_requests_running 2\n", None),
        (b"python_info 1\n", None),
        (b"<html>not metrics</html>", None),
        (b"", None),
    ],
    ids=[
        "two engines",
        "underscores",
        "no labels",
        "llama.cpp",
        "SGLang",
        "TGI",
        "a small number and a time",
        "infinity",
        "no numbers",
        "not a number",
        "one gauge",
        "others",
        "html",
        "empty",
    ],
)
def test_samples_of_all_engines_are_added_up(text: bytes, load: RuntimeLoad | None) -> None:
    assert read_load(text) == load


def test_a_server_without_gauges_is_not_asked_again_soon(runtime_server: Callable[..., RuntimeProcess]) -> None:
    runtime = runtime_server()
    executor = VLLMExecutor(ExecutorSettings(), runtime.url)
    assert executor.load() is None
    runtime.kill()
    assert executor.load() is None
    executor.close()


def test_a_server_that_is_not_there_has_no_load() -> None:
    executor = VLLMExecutor(ExecutorSettings(), "http://127.0.0.1:9")
    assert executor.load() is None
    executor.close()
    assert executor.load() is None


def test_the_load_comes_over_the_wire(runtime_server: Callable[..., RuntimeProcess]) -> None:
    runtime = runtime_server("--gauges", "--slots", 3)
    executor = VLLMExecutor(ExecutorSettings(), runtime.url)
    assert executor.load() == RuntimeLoad(0, 0)
    executor.close()


def test_refusals_are_counted_however_the_row_ends(vllm: VLLMExecutor) -> None:
    for orders in ("status=503;times=2", "status=429;times=1", "status=500;times=1", "status=400"):
        run(vllm, chat_row(user=orders))
    assert vllm.refusals == 3
