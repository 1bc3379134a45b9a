import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest
from redis import Redis

from app.local.broker import LocalBroker, find_server, local_broker
from app.local.errors import BrokerError
from config.broker_url import for_celery, for_redis


class Started:
    """A broker process of a test, started and killed as often as the test likes."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait_seconds: float = 5) -> None:
        lock = self.broker.lock(wait_seconds=wait_seconds)
        self.process = subprocess.Popen(self.broker.argv, stdout=subprocess.DEVNULL, pass_fds=(lock,))
        os.close(lock)
        until = time.monotonic() + 10
        while not self.broker.answers():
            assert time.monotonic() < until, "the broker did not start"
            time.sleep(0.01)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def client(self) -> Redis:
        return Redis(unix_socket_path=str(self.broker.socket), decode_responses=True)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    broker = Started(local_broker(tmp_path))
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def test_a_killed_broker_comes_back_with_what_it_had(started: Started) -> None:
    with started.client() as client:
        client.rpush("gpu", *range(1000))
        until = time.monotonic() + 5
        while client.info("persistence")["aof_pending_bio_fsync"] or client.info("persistence")["aof_buffer_length"]:
            assert time.monotonic() < until
    started.kill()
    started.start()

    with started.client() as client:
        assert client.llen("gpu") == 1000


def test_a_second_server_on_the_same_folder_is_refused(started: Started) -> None:
    with pytest.raises(BrokerError, match="another broker runs"):
        started.broker.lock(wait_seconds=0.2)


def test_the_server_listens_to_no_network_and_never_evicts(started: Started) -> None:
    with started.client() as client:
        settings = client.config_get("*")

    assert settings["port"] == "0"
    assert (settings["maxmemory-policy"], settings["appendonly"], settings["save"]) == ("noeviction", "yes", "")
    assert started.broker.socket.stat().st_mode & 0o077 == 0


def test_any_name_of_a_data_folder_is_reached_by_the_url(tmp_path: Path) -> None:
    odd = tmp_path / "C# 100%25 日本;a=b&c@d:[e]"
    odd.mkdir()
    started = Started(local_broker(odd))
    try:
        started.start()
        url = started.broker.url
        with Redis.from_url(for_redis(for_celery(url))) as client:
            assert client.ping()
        with kombu.Connection(for_celery(url)) as connection:
            connection.ensure_connection(max_retries=1, timeout=5)
    finally:
        started.kill()


def test_a_data_folder_too_deep_for_a_socket_gets_one_elsewhere_and_always_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    started = Started(local_broker(deep))
    try:
        started.start()
        assert local_broker(deep).socket == started.broker.socket
        assert local_broker(deep / "other").socket != started.broker.socket
        assert started.broker.socket.parent.stat().st_mode & 0o777 == 0o700
    finally:
        started.kill()
        for path in (started.broker.socket, local_broker(deep / "other").socket):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def test_a_folder_somebody_else_could_have_made_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    folder = local_broker(deep).socket.parent
    folder.chmod(0o777)
    try:
        with pytest.raises(BrokerError, match="not a folder of this user alone"):
            local_broker(deep)
    finally:
        folder.rmdir()


def test_a_server_on_the_path_goes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "valkey-server"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server() == mine


def test_without_any_server_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("app.local.broker.find_spec", lambda _name: None)

    with pytest.raises(BrokerError, match="the extra `embedded`"):
        find_server()
