"""The whole stack in containers: up, a batch, a killed worker, down and up again. The tests go on from each other."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docker.stack import Deaths, Stack, make_env
from tests.docker.test_compose_file import ALWAYS, ONCE, secrets_of
from tests.e2e.rows import counts, custom_ids
from tests.e2e.submitted import Submitted
from tests.e2e.yard import until

BATCH_SECONDS = 400
ASK_THE_BROKER = """
import json, os, redis
from redis.exceptions import NoPermissionError

def says(*command):
    try:
        broker.execute_command(*command)
    except NoPermissionError:
        return "refused"
    return "allowed"

broker = redis.Redis.from_url(os.environ["GPUYARD_BROKER_URL"])
found = {queue: says("LLEN", queue) for queue in ("gpu", "control", "night")}
print(json.dumps(found | {"acl": says("ACL", "LIST")}))
"""


@pytest.fixture(scope="module")
def running(images: Stack) -> Iterator[Stack]:
    """The stack, up and healthy."""
    images.up()
    yield images
    images.remove()


SHORT = [(f"Count to {number}.", 4) for number in range(8)]
LONG = [("Write a long story about a dog.", 240), ("Count from 1 to 1000.", 240)]
"""On any machine they last longer than it takes to store the short ones and to stop the worker."""


def assert_each_answered_once(batch: Submitted, rows: int) -> None:
    ended = batch.ended(seconds=BATCH_SECONDS)
    assert counts(batch) == (rows, rows, 0), batch.errors()[:3]
    assert custom_ids(batch.output()) == [f"row-{number}" for number in range(rows)]
    assert ended.error_file_id is None


def test_it_comes_up_healthy_without_a_profile(running: Stack) -> None:
    found = running.containers()
    assert {name for name, part in found.items() if part["State"] == "running"} == ALWAYS - ONCE
    assert {(found[name]["State"], found[name]["ExitCode"]) for name in ONCE} == {("exited", 0)}
    assert {name for name, part in found.items() if part["Health"] == "healthy"} == ALWAYS - ONCE
    assert running.http.get("/readyz").json()["ready"] is True


def test_new_passwords_are_not_made_for_a_stack_that_has_its_own(running: Stack, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"this machine has a stack {running.name} already"):
        make_env(tmp_path, name=running.name)
    assert not (tmp_path / ".env").exists()


def test_its_worker_came_with_the_key_of_the_env_and_a_batch_is_answered(running: Stack) -> None:
    batch = running.submit([("Name the capital of France.", 16), *SHORT])
    assert_each_answered_once(batch, 1 + len(SHORT))
    first = batch.output()[0]["response"]["body"]["choices"][0]["message"]["content"]
    assert "Paris" in first
    names = {worker["name"] for worker in running.http.get("/v1/workers").json()["data"]}
    assert names == {"compose-cpu"}


def test_no_secret_is_among_the_arguments_of_its_processes(running: Stack) -> None:
    """Health checks come and go; what they run is in tests/docker/test_compose_file.py."""
    processes = running.compose("top")
    assert "redis-server" in processes
    assert "flower" in processes
    assert not [name for name, value in secrets_of(running).items() if value in processes]


def test_the_broker_refused_nothing_to_either_side_and_a_worker_has_the_queue_of_its_pool_alone(running: Stack) -> None:
    def as_admin(*command: str) -> str:
        return running.compose("exec", "-T", "redis", "redis-cli", *command)

    assert as_admin("acl", "log").split() == []
    assert set(as_admin("acl", "users").split()) == {"default", "gpuyard-control", "gpuyard-gpu"}
    asked = running.compose("exec", "-T", "worker", "python", "-c", ASK_THE_BROKER)
    assert json.loads(asked) == {"gpu": "allowed", "control": "refused", "night": "refused", "acl": "refused"}
    as_admin("acl", "log", "reset")
    nobody = running.compose("exec", "-T", "--env", "REDISCLI_AUTH=", "redis", "redis-cli", "llen", "gpu")
    assert "NOAUTH" in nobody


def test_flower_asks_for_a_password_and_changes_nothing(running: Stack) -> None:
    flower = f"http://127.0.0.1:{running.flower_port}"
    known = ("admin", running.env["FLOWER_PASSWORD"])
    assert httpx.get(f"{flower}/api/workers").status_code == 401
    assert httpx.get(f"{flower}/workers", auth=known).status_code == 200
    assert httpx.post(f"{flower}/api/worker/shutdown/celery@x", auth=known).status_code == 403


def test_the_brokers_data_lasts_and_is_never_evicted(running: Stack) -> None:
    for setting, value in {"appendonly": "yes", "maxmemory-policy": "noeviction"}.items():
        said = running.compose("exec", "-T", "redis", "redis-cli", "config", "get", setting)
        assert said.split() == [setting, value]


def test_a_worker_killed_in_mid_run_comes_back_and_no_row_is_lost_or_doubled(running: Stack) -> None:
    rows = len(SHORT + LONG)
    batch = running.submit(SHORT + LONG)
    batch.stored(1, seconds=BATCH_SECONDS)
    running.compose("kill", "--signal", "KILL", "worker")
    assert running.inspect("worker")["State"]["ExitCode"] == 137
    stored = batch.now().request_counts
    assert stored is not None
    assert stored.completed < rows, "it was over before the worker was killed: ask for more tokens"
    running.up("worker")
    assert_each_answered_once(batch, rows)


def test_down_drains_its_worker_and_what_was_not_done_is_done_after_the_next_up(running: Stack, tmp_path: Path) -> None:
    rows = len(SHORT + LONG)
    batch = running.submit(SHORT + LONG)
    batch.stored(1, seconds=BATCH_SECONDS)
    with Deaths(running.name, tmp_path / "deaths") as deaths:
        running.compose("down", seconds=180)
        codes = deaths.exit_codes({"worker", "api", "control", "beat", "redis", "postgres"})
    assert codes["worker"] == 0
    assert {service: codes[service] for service in ("api", "control", "beat")} == dict.fromkeys(
        ("api", "control", "beat"), 0
    )
    running.up()
    left = batch.now().request_counts
    assert left is not None
    assert left.completed >= 1
    assert_each_answered_once(batch, rows)
    workers = running.http.get("/v1/workers").json()["data"]
    assert [worker["name"] for worker in workers if worker["state"] != "gone"] == ["compose-cpu"], json.dumps(workers)


def test_more_workers_have_names_of_their_own(running: Stack) -> None:
    running.up("--scale", "worker=3")

    def ready() -> set[str]:
        workers = running.http.get("/v1/workers").json()["data"]
        return {worker["name"] for worker in workers if worker["state"] == "active"}

    until(lambda: ready() == {"compose-cpu", "compose-cpu-2", "compose-cpu-3"}, "all three have loaded the model")
