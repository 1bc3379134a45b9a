"""Rows that kill whoever runs them, with real workers: each costs itself, and at most five workers (R-04)."""

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.e2e.conftest import LATER_ON_POSTGRES, LATER_ON_SQLITE, Fleet
from tests.e2e.rows import assert_books_balance, counts, custom_ids, lines, row
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 300
SHARD_ROWS = 32
MAX_LOSSES = 5
WORKERS = ("north", "east", "south")
DEADLY = "deadly"
RUNTIME = f"""
import json
import os
import signal
import time

from app.domain.rows import Reply
from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.base import BaseExecutor


class MineExecutor(BaseExecutor):
    kind = "mine"
    default_url = "mine://here"

    def probe(self):
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=True,
            models=(ServedModel("mock"),),
            endpoints=("/v1/chat/completions",),
        )

    def execute(self, row, *, timeout, cancelled):
        if b"{DEADLY}" in row.body:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        message = {{"role": "assistant", "content": f"answer [[{{row.custom_id}}]]"}}
        choice = {{"index": 0, "message": message, "finish_reason": "stop"}}
        return Reply(status=200, body=json.dumps({{"choices": [choice]}}).encode(), request_id="mine-1")

    def close(self):
        pass
"""


class Supervisor:
    """Starts a worker again whenever it has died, as a machine's own supervisor would, and counts the deaths."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.deaths = 0
        for name in WORKERS:
            self._start(name)
        yard.until_present(*WORKERS)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            for name in WORKERS:
                if not self._yard.workers[name].alive:
                    self.deaths += 1
                    self._start(name)

    def _start(self, name: str) -> None:
        self._yard.worker(name, runtime="mine_runtime:MineExecutor", runtime_url="")


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[Yard]:
    where = tmp_path_factory.mktemp("yard")
    with Yard(where, database_url=fleet.database_url, transports=fleet.transports, shard_rows=SHARD_ROWS) as yard:
        yard.start()
        (yard.folder / "mine_runtime.py").write_text(RUNTIME)
        yield yard


@pytest.fixture(scope="module")
def supervisor(yard: Yard) -> Iterator[Supervisor]:
    found = Supervisor(yard)
    yield found
    found.close()


def run(yard: Yard, supervisor: Supervisor, prefix: str, deadly: Sequence[int]) -> list[dict[str, Any]]:
    """Run a batch with these deadly rows; checks all of it, and gives its events."""
    died_before = supervisor.deaths
    batch = yard.submit(lines(row(prefix, n, DEADLY if n in deadly else "") for n in range(ROWS)))
    batch.ended(seconds=120 + 60 * len(deadly))
    assert counts(batch) == (ROWS, ROWS - len(deadly), len(deadly))
    errors = batch.errors()
    assert custom_ids(errors) == [f"{prefix}-{n}" for n in deadly]
    assert {line["error"]["code"] for line in errors} <= {"worker_lost"}
    assert_books_balance(batch, prefix, ROWS)
    deaths = supervisor.deaths - died_before
    logging.getLogger("figures").info("%d deadly rows of %d: %d workers died", len(deadly), ROWS, deaths)
    assert deaths <= MAX_LOSSES * len(deadly)
    events = yard.events(batch.id)
    lost = [event["data"]["row"] for event in events if event["type"] == "job.row_lost"]
    assert sorted(lost) == sorted(deadly)
    return events


@pytest.mark.parametrize("fleet", ["celery-sqlite", LATER_ON_POSTGRES], indirect=True)
def test_one_row_that_kills_its_worker_fails_alone(yard: Yard, supervisor: Supervisor) -> None:
    events = run(yard, supervisor, "one", [130])
    assert "job.cautious" in [event["type"] for event in events], json.dumps(events)


@pytest.mark.parametrize("fleet", [LATER_ON_SQLITE, LATER_ON_POSTGRES], indirect=True)
def test_two_such_rows_in_different_shards_fail_alone(yard: Yard, supervisor: Supervisor) -> None:
    run(yard, supervisor, "two", [40, 200])


@pytest.mark.parametrize("fleet", [LATER_ON_SQLITE, LATER_ON_POSTGRES], indirect=True)
def test_two_such_rows_in_one_shard_fail_alone(yard: Yard, supervisor: Supervisor) -> None:
    run(yard, supervisor, "same", [66, 80])


@pytest.mark.parametrize("fleet", ["celery-sqlite", LATER_ON_POSTGRES], indirect=True)
def test_the_pool_is_whole_again(yard: Yard, supervisor: Supervisor) -> None:
    run(yard, supervisor, "after", [])

    def all_active() -> bool:
        return all(yard.http.get(f"/v1/workers/{name}").json()["state"] == "active" for name in WORKERS)

    until(all_active, "every worker was started again", seconds=60)
