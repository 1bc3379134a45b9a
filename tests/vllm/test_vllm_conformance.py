"""A real vLLM behind VLLMExecutor keeps the promises of BaseExecutor: the suite's own tests, on another rig."""

from collections.abc import Iterator

import pytest

from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row
from tests.executors.test_conformance import (
    Rig,
    test_a_probe_tells_models_endpoints_and_that_it_lives,
    test_a_reply_is_one_line_of_ascii_json_with_its_tokens_counted,
    test_a_row_cancelled_before_it_starts_never_runs,
    test_a_slow_row_ends_soon_after_its_cancel,
    test_a_slow_row_times_out,
    test_after_close_rows_fail_at_once_and_closing_again_is_nothing,
    test_rows_of_many_threads_get_their_own_answers,
)
from tests.vllm.engine import MODEL, VllmServer

__all__ = [
    "test_a_probe_tells_models_endpoints_and_that_it_lives",
    "test_a_reply_is_one_line_of_ascii_json_with_its_tokens_counted",
    "test_a_row_cancelled_before_it_starts_never_runs",
    "test_a_slow_row_ends_soon_after_its_cancel",
    "test_a_slow_row_times_out",
    "test_after_close_rows_fail_at_once_and_closing_again_is_nothing",
    "test_rows_of_many_threads_get_their_own_answers",
]


@pytest.fixture
def rig(executor: VLLMExecutor, server: VllmServer) -> Iterator[Rig]:
    yield Rig(
        executor=executor,
        quick=lambda: chat_row(model=MODEL, max_tokens=4, ignore_eos=True),
        slow=lambda: chat_row("Count to a million.", model=MODEL, max_tokens=1900, ignore_eos=True),
        echoes=False,
    )
    server.wait_for_load(running=0)
