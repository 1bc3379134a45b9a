"""What an admin asks of a worker on the command line, and how a command becomes a worker."""

from typing import Any

import pytest

from tests.commands import Commands
from tests.fakes.public_api import FakePublicApi, Says

DRAIN = "POST /v1/workers/gpu-1/drain"
SHOW = "GET /v1/workers/wrk_1"


def worker(state: str = "active", **more: Any) -> Says:
    return Says({"id": "wrk_1", "name": "gpu-1", "state": state, "drain_requested_at": 1.0} | more)


def test_a_drain_is_asked_for_and_not_waited_for(api: FakePublicApi, told: Commands) -> None:
    api.says(DRAIN, worker())
    done = told.run("worker", "drain", "gpu-1")
    assert (done.code, done.out) == (0, "gpu-1 was asked to leave\n")
    assert api.calls == [DRAIN]


def test_a_drain_is_waited_for_until_the_worker_has_left(api: FakePublicApi, told: Commands) -> None:
    api.says(DRAIN, worker())
    api.says(SHOW, worker(), worker("draining"), worker("gone"))
    assert told.run("worker", "drain", "gpu-1", "--wait", "--json").document["state"] == "gone"
    assert api.calls == [DRAIN, SHOW, SHOW, SHOW]


@pytest.mark.parametrize(
    ("state", "says"), [("offline", "it leaves when it is heard of again"), ("active", "has not left within 0 s")]
)
def test_a_wait_that_leads_to_nothing_ends_with_1(api: FakePublicApi, told: Commands, state: str, says: str) -> None:
    api.says(DRAIN, worker(state))
    api.says(SHOW, worker(state))
    done = told.run("worker", "drain", "gpu-1", "--wait", "--timeout", "0")
    assert (done.code, done.out) == (1, "")
    assert says in done.err


def test_a_reset_is_asked_for(api: FakePublicApi, told: Commands) -> None:
    api.says("POST /v1/workers/gpu-1/reset", worker())
    done = told.run("worker", "reset", "gpu-1")
    assert (done.code, done.out) == (0, "gpu-1 was asked to try again at once\n")


@pytest.mark.parametrize(
    "arguments",
    [("--pool", "gpu"), ("--transport", "pigeon"), ("--transport", "http", "list"), ("--pool", "gpu", "list")],
)
def test_options_of_a_worker_without_its_transport_or_with_a_command_are_wrong_usage(
    told: Commands, arguments: tuple[str, ...]
) -> None:
    done = told.run("worker", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "--transport" in done.err
