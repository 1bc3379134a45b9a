"""Workers, pools, orgs, keys and events on the command line."""

import json
import signal

import pytest

from tests.commands import Commands

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def test_a_worker_is_listed_with_what_it_has_free_and_why_it_gets_no_lease(yard: Commands) -> None:
    listed = yard.run("worker", "list")
    [worker] = yard.run("worker", "list", "--json").document
    shown = yard.run("worker", "show", worker["name"])

    head, _, *lines = listed.out.splitlines()
    columns = ["worker", "pool", "state", "seen", "load", "memory", "disk", "batches", "no", "lease", "runtimes"]
    assert head.split() == columns
    assert "4/4 up" in lines[0]
    assert worker["name"] in lines[0]
    assert "models" in shown.out
    assert "quick" in shown.out
    assert yard.run("worker", "show", worker["id"], "--json").document["name"] == worker["name"]


def test_a_pool_is_made_and_changed_by_what_is_named_alone(yard: Commands) -> None:
    made = yard.run("pool", "create", "night", "--slots", "batches=2", "--max-load", "3", "--json").document
    changed = yard.run("pool", "set", "night", "--max-load", "none", "--min-memory-gb", "1.5", "--json").document

    assert (made["slots"]["batches"], made["max_load"], made["min_memory_gb"]) == (2, 3.0, None)
    assert (changed["slots"]["batches"], changed["max_load"], changed["min_memory_gb"]) == (2, None, 1.5)
    assert "night" in yard.run("pool", "list").out
    assert "gpu*" in yard.run("pool", "list").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "gpu"), 1),
        (("set", "gpu", "--slots", "batches=many"), 2),
        (("set", "gpu", "--slots", "batches=1.5"), 2),
        (("set", "gpu", "--max-losses", "2.9"), 2),
        (("set", "gpu", "--max-load", "nan"), 2),
        (("set", "gpu", "--timing", "renew=1"), 2),
    ],
)
def test_a_pool_that_cannot_be_is_refused(yard: Commands, arguments: tuple[str, ...], code: int) -> None:
    done = yard.run("pool", *arguments)

    assert (done.code, done.out) == (code, "")


def test_a_key_is_alone_on_standard_output_works_until_revoked_and_is_never_shown_again(yard: Commands) -> None:
    made = yard.run("token", "create", "joe", "--scope", "read")
    key = made.out.strip()
    listed = yard.run("token", "list")

    assert made.out == f"{key}\n"
    assert key.startswith("gk-")
    assert yard.run("batch", "list", GPUYARD_API_KEY=key).code == 0
    assert key not in listed.out
    assert "joe" in listed.out
    assert yard.run("token", "revoke", "joe").code == 0
    refused = yard.run("batch", "list", GPUYARD_API_KEY=key)
    assert refused.code == 1
    assert "refuses the key from environment" in refused.err
    assert key not in refused.err
    assert "joe" not in yard.run("token", "list").out
    assert "joe" in yard.run("token", "list", "--all").out


def test_a_name_that_two_keys_have_revokes_none(yard: Commands) -> None:
    first, second = (yard.run("token", "create", "twins", "--json").document for _ in range(2))
    refused = yard.run("token", "revoke", "twins")

    assert refused.code == 1
    assert first["id"] in refused.err
    assert yard.run("token", "revoke", first["id"]).code == 0
    assert yard.run("token", "revoke", second["prefix"], "--json").document["id"] == second["id"]


def test_an_org_gets_its_first_key_as_the_command_says_and_sees_its_own_alone(yard: Commands) -> None:
    org = yard.run("org", "create", "acme").out.strip()
    key = yard.run("token", "create", "their-admin", "--org", org, "--scope", "admin").out.strip()

    assert org in yard.run("org", "list").out
    theirs = yard.run("token", "list", "--json", GPUYARD_API_KEY=key).document
    assert [token["name"] for token in theirs] == ["their-admin"]
    assert yard.run("org", "list", GPUYARD_API_KEY=key).code == 1


def test_a_key_without_the_scope_is_told_which_one_and_how_to_get_it(yard: Commands) -> None:
    key = yard.run("token", "create", "worker-1", "--single-worker").out.strip()
    done = yard.run("batch", "list", GPUYARD_API_KEY=key)

    assert done.code == 1
    assert "gpuyard token create" in done.err
    yard.run("token", "revoke", "worker-1")


def test_events_are_the_last_ones_and_follow_what_happens(yard: Commands) -> None:
    process = yard.start("events", "-f", "-n", "1", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())
    token = yard.run("token", "create", "seen", "--json").document
    followed = next(event for line in process.stdout if (event := json.loads(line))["subject"] == token["id"])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)

    assert followed["type"] == "token.created"
    assert (process.returncode, err) == (130, "")
    alone = yard.run("events", "--subject", token["id"], "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in alone] == [followed["id"]]
    assert "token.created" in yard.run("events", "--subject", token["id"]).out
