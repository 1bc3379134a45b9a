"""`gpuyard webhook`: the secret alone on standard output, deliveries with their last error, a test by its exit code."""

from typing import Any

import pytest

from tests.commands import Commands
from tests.fakes.public_api import FakePublicApi, Says

PATH = "/v1/webhook_endpoints"


def endpoint(name: str = "mine", id_: str = "whe_1", **health: Any) -> dict[str, Any]:
    known = {"enabled": True, "disabled_reason": None, "last_success_at": None, "last_failure_at": None}
    return {
        "id": id_,
        "name": name,
        "url": "https://example.org/hook",
        "event_types": ["batch.completed", "batch.failed"],
        "signing_secret_hint": "whsec_…abcd",
        "gpuyard": {**known, "disabled_at": None, "last_error": None, **health},
    }


def listing(*data: Any) -> Says:
    return Says({"object": "list", "data": list(data), "has_more": False})


def delivery(state: str, **more: Any) -> dict[str, Any]:
    known = {"batch_id": "batch_b", "type": "batch.completed", "tries": 2, "next_try_at": None, "last_error": None}
    return {**known, "state": state, **more}


def test_a_secret_is_alone_on_standard_output(api: FakePublicApi, told: Commands) -> None:
    api.says(f"POST {PATH}", Says({**endpoint(), "signing_secret": "whsec_s"}))
    done = told.run("webhook", "create", "https://example.org/hook", "--event", "batch.failed")

    assert (done.code, done.out) == (0, "whsec_s\n")
    assert "shown this once" in done.err


def test_a_list_says_why_one_is_disabled_and_that_another_fails(api: FakePublicApi, told: Commands) -> None:
    ill = endpoint("ill", "whe_2", last_failure_at=9, last_success_at=3)
    gone = endpoint("gone", "whe_3", enabled=False, disabled_reason="nothing was taken")
    api.says(f"GET {PATH}", listing(endpoint(), ill, gone))
    lines = told.run("webhook", "list").out.splitlines()[2:]

    assert [(line.split()[1], line.split()[3]) for line in lines] == [
        ("mine", "enabled"),
        ("ill", "failing"),
        ("gone", "disabled:"),
    ]
    assert "nothing was taken" in lines[2]


def test_deliveries_show_the_last_error_of_each(api: FakePublicApi, told: Commands) -> None:
    api.says(f"GET {PATH}", listing(endpoint()))
    waiting = delivery("waiting", next_try_at=5, last_error="it answered HTTP 500")
    api.says(f"GET {PATH}/whe_1/deliveries", listing(waiting))
    out = told.run("webhook", "deliveries", "mine").out

    for word in ("batch_b", "waiting", "1970-01-01", "it answered HTTP 500"):
        assert word in out


def test_what_was_not_delivered_is_told_again_and_nothing_else(api: FakePublicApi, told: Commands) -> None:
    api.says(f"GET {PATH}", listing(endpoint()))
    api.says(
        f"GET {PATH}/whe_1/deliveries", listing(*(delivery(state) for state in ("delivered", "given_up", "dropped")))
    )
    api.says(f"POST {PATH}/whe_1/redeliver", Says(delivery("waiting")))
    document = told.run("webhook", "redeliver", "mine", "--undelivered", "--json").document
    named = told.run("webhook", "redeliver", "mine", "batch_b")

    assert [each["state"] for each in document] == ["waiting", "waiting"]
    assert (named.code, "batch_b" in named.out) == (0, True)
    assert sum(call.startswith("POST") for call in api.calls) == 3


@pytest.mark.parametrize("arguments", [(), ("batch_b", "--undelivered")])
def test_what_is_to_be_told_again_is_named_or_is_all_that_is_undelivered(
    told: Commands, arguments: tuple[str, ...]
) -> None:
    assert told.run("webhook", "redeliver", "mine", *arguments).code == 2


def test_a_sample_that_is_not_taken_is_exit_code_1(api: FakePublicApi, told: Commands) -> None:
    api.says(f"GET {PATH}", listing(endpoint()))
    results = [Says({"event_type": "batch.failed", "status_code": status}) for status in (204, 500)]
    api.says(f"POST {PATH}/whe_1/test", *results)
    codes = [told.run("webhook", "test", "mine", "--event", "batch.failed").code for _ in results]

    assert codes == [0, 1]


def test_a_name_of_two_is_asked_about_and_nothing_is_deleted(api: FakePublicApi, told: Commands) -> None:
    api.says(f"GET {PATH}", listing(endpoint(), endpoint(id_="whe_2")))
    done = told.run("webhook", "delete", "mine")

    assert done.code == 1
    assert "whe_1, whe_2" in done.err
    assert not [call for call in api.calls if call.startswith("DELETE")]


def test_an_id_means_its_own_endpoint_also_when_it_is_the_name_of_another(api: FakePublicApi, told: Commands) -> None:
    api.says(f"GET {PATH}", listing(endpoint("whe_2", "whe_1"), endpoint("mine", "whe_2")))
    api.says(f"DELETE {PATH}/whe_2", Says({"id": "whe_2", "deleted": True}))
    assert told.run("webhook", "delete", "whe_2").out == "whe_2 is deleted\n"
