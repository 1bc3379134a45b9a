"""`gpuyard broker acl`: prints a pool's account, and sets it at a broker without taking its password away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from tests.commands import Commands
from tests.secured_broker import ADMIN, SecuredBroker, password_of, secured_broker

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture
def operator(broker: SecuredBroker, tmp_path: Path) -> Commands:
    url = f"unix://{ADMIN}:{password_of(ADMIN).replace(' ', '%20')}@{broker.socket}"
    return Commands(tmp_path, {"GPUYARD_BROKER_ADMIN_URL": url})


def rings(broker: SecuredBroker, password: str) -> bool:
    with Redis(port=broker.port, username="gpuyard-big", password=password) as client:
        with pytest.raises(NoPermissionError):
            client.lpush("gpu", "bell")
        return bool(client.lpush("big", "bell"))


def test_an_account_is_set_kept_and_given_a_new_password_when_that_is_asked_for(
    operator: Commands, broker: SecuredBroker
) -> None:
    made = operator.run("broker", "acl", "big", "--apply", "--json").document
    again = operator.run("broker", "acl", "big", "--apply", "--json").document

    assert (made["user"], made["applied"]) == ("gpuyard-big", True)
    assert again["password"] is None
    assert again["line"] == made["line"]
    assert rings(broker, made["password"])
    with broker.admin() as admin:
        admin.acl_load()  # as at the next start: what is not in the file is gone
    assert rings(broker, made["password"])

    renewed = operator.run("broker", "acl", "big", "--apply", "--new-password", "--json").document
    assert rings(broker, renewed["password"])


def test_the_line_alone_is_on_standard_output_and_no_password_is_in_it(tmp_path: Path) -> None:
    done = Commands(tmp_path).run("broker", "acl", "gpu")
    given = Commands(tmp_path).run("broker", "acl", "gpu", "--password-file", "-", stdin=b"mine\n")

    assert done.out.startswith("user gpuyard-gpu reset #")
    assert done.out.count("\n") == 1
    password = done.err.strip().rpartition(" ")[2]
    assert len(password) == 43
    assert password not in done.out
    assert (given.err, "mine" in given.out) == ("", False)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("GPU",), "no pool name"),
        (("gpu", "--apply"), "GPUYARD_BROKER_ADMIN_URL"),
        (("gpu", "--apply", "--admin-url", "rediss://127.0.0.1:1/0"), "ssl_cert_reqs=required"),
        (("gpu", "--apply", "--admin-url", "redis://root:word@127.0.0.1:1/0"), "root:***@127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    done = Commands(tmp_path).run("broker", "acl", *arguments)

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert what in done.err
