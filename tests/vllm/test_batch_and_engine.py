"""A whole batch while its real engine hangs, or is ended and started again: every row is answered, none is burned."""

from collections.abc import Iterator

import pytest

from tests.e2e.yard import Yard
from tests.vllm.batches import assert_all_answered, batch_of, pool_with_worker
from tests.vllm.engine import VllmServer

ROWS = 300
TOKENS = 100


@pytest.fixture(scope="module")
def yard(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with Yard(tmp_path_factory.mktemp("yard")) as made:
        made.start()
        yield made


def test_a_hanging_engine_is_no_longer_asked_until_it_answers(yard: Yard, server: VllmServer) -> None:
    """Its own health check says 200 all the while."""
    pool = pool_with_worker(yard, server, "hanging", max_concurrent_prompts=16, row_timeout_seconds=6)
    batch = batch_of(yard, pool, ROWS, tokens=TOKENS)
    batch.stored(20)
    core = server.engine_core()
    core.suspend()
    try:
        yard.workers["hanging"].until_it_says("runtime.failing", seconds=60)
    finally:
        core.resume()
    batch.ended(seconds=200)
    assert_all_answered(batch, ROWS, tokens=TOKENS)


def test_an_engine_that_is_started_again_in_mid_batch_costs_no_row(yard: Yard, server: VllmServer) -> None:
    pool = pool_with_worker(yard, server, "restarted", max_concurrent_prompts=16)
    batch = batch_of(yard, pool, ROWS, tokens=TOKENS)
    batch.stored(20)
    server.terminate()
    server.start()
    batch.ended(seconds=200)
    assert_all_answered(batch, ROWS, tokens=TOKENS)
