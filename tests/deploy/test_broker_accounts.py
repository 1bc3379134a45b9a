"""The accounts of the stack's broker, written as the service `accounts` does and read by a real broker."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from app.local.broker import find_server

SCRIPT = Path(__file__).parents[2] / "deploy" / "broker_accounts.py"
PASSWORDS = {
    "REDIS_PASSWORD": "of-the-admin",
    "REDIS_CONTROL_PASSWORD": "of-control",
    "REDIS_GPU_PASSWORD": "of-gpu",
    "REDIS_NIGHT_SHIFT_PASSWORD": "of-night-shift",
}


def write(file: Path, **passwords: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REDIS_")}
    environment = inherited | {"PYTHONPATH": str(SCRIPT.parents[1])} | passwords
    argv = [sys.executable, str(SCRIPT), str(file)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A broker with the accounts of a file; gives its socket."""
    folder = tmp_path_factory.mktemp("b")
    done = write(folder / "users.acl", **PASSWORDS)
    assert done.returncode == 0, done.stderr
    path = folder / "b.sock"
    options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    argv = [str(find_server()), *options, "--aclfile", str(folder / "users.acl")]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as server:
        yield path
        server.kill()


def account(path: Path, name: str, password: str) -> Redis:
    return Redis(unix_socket_path=str(path), username=name, password=password)


def test_each_password_opens_its_own_account_and_a_pools_its_own_queues_alone(
    broker: Path, until: Callable[..., None]
) -> None:
    def answers() -> bool:
        try:
            return bool(account(broker, "default", "of-the-admin").ping())
        except RedisError:
            return False

    until(answers)
    with account(broker, "default", "of-the-admin") as admin:
        assert set(admin.acl_users()) == {"default", "gpuyard-control", "gpuyard-gpu", "gpuyard-night-shift"}
    with account(broker, "gpuyard-control", "of-control") as control:
        assert control.lpush("gpu", "bell") == control.lpush("control", "bell") == 1
    for pool, other in (("gpu", "night-shift"), ("night-shift", "gpu")):
        with account(broker, f"gpuyard-{pool}", f"of-{pool}") as worker:
            assert worker.llen(pool) == (pool == "gpu")
            for queue in (other, "control"):
                with pytest.raises(NoPermissionError):
                    worker.llen(queue)
    with Redis(unix_socket_path=str(broker)) as nobody, pytest.raises(AuthenticationError):
        nobody.llen("gpu")


def test_the_file_holds_no_password(tmp_path: Path) -> None:
    done = write(tmp_path / "users.acl", **PASSWORDS)
    written = (tmp_path / "users.acl").read_text()
    assert done.stdout == "wrote 4 accounts: default, gpuyard-control, gpuyard-gpu, gpuyard-night-shift\n"
    assert not [password for password in PASSWORDS.values() if password in written + done.stdout]


@pytest.mark.parametrize(
    "wrong", [{"REDIS_PASSWORD": ""}, {"REDIS_GPU_PASSWORD": ""}, {"REDIS___PASSWORD": "of-a-name-that-is-none"}]
)
def test_what_makes_no_account_is_said_and_leaves_the_file_as_it_was(tmp_path: Path, wrong: dict[str, str]) -> None:
    file = tmp_path / "users.acl"
    file.write_text("as it was")
    done = write(file, **(PASSWORDS | wrong))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no accounts for the broker: ")
    assert file.read_text() == "as it was"


def test_without_an_administrator_there_are_no_accounts(tmp_path: Path) -> None:
    done = write(tmp_path / "users.acl", **{name: PASSWORDS[name] for name in PASSWORDS if name != "REDIS_PASSWORD"})
    assert (done.returncode, (tmp_path / "users.acl").exists()) == (1, False)
