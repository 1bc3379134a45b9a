"""A yard that lets nobody in by chance: TLS with a private authority on both legs, and a broker account a pool."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from config.broker_acl import rules_of, user_of
from tests.authority import Authority, has_openssl, make_authority
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import CELERY, GPUYARD, Yard, until
from tests.secured_broker import SecuredBroker, password_of, secured_broker, server_with_tls

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,  # what an account may do is held by tests/broker/test_broker_acl.py
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not has_openssl(), reason="there is no openssl to make certificates with"),
]

ROWS = 200


@pytest.fixture(scope="module")
def trust() -> Iterator[pytest.MonkeyPatch]:
    """Environment of this module and of all that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, trust: pytest.MonkeyPatch) -> Authority:
    """Made by the page's own commands, and trusted by this process and its children."""
    found = make_authority(tmp_path_factory.mktemp("authority"))
    trust.setenv("SSL_CERT_FILE", str(found.ca))
    return found


@pytest.fixture(scope="module", params=["behind-a-front", "of-its-own"])
def broker(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    """A broker with TLS: by a front, and by a server that was built with it."""
    server = server_with_tls() if request.param == "of-its-own" else None
    if request.param == "of-its-own" and server is None:
        pytest.skip("no redis-server with TLS on PATH (on Debian: apt-get install redis-server)")
    with secured_broker(tmp_path_factory.mktemp("b"), "gpu", authority=authority, server=server) as found:
        yield found


@pytest.fixture(scope="module")
def yard(broker: SecuredBroker, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """The control plane with its own account; the worker `one` with its pool's."""
    with Yard(
        tmp_path_factory.mktemp("yard"),
        broker_url=broker.url("control"),
        tls_cert=authority.certificate,
        tls_key=authority.key,
    ) as yard:
        yard.start("--flower")
        yard.worker("one", broker_url=broker.url("gpu"))
        yard.until_present("one")
        yield yard


def test_a_batch_runs_by_bells_and_nothing_that_either_side_needs_is_refused(yard: Yard, broker: SecuredBroker) -> None:
    assert yard.url.startswith("https://")
    batch = yard.submit(marked("trusted", ROWS))
    batch.ended()
    assert_each_row_once(batch, "trusted", ROWS)
    assert "run_batch" in yard.workers["one"].log.read_text()
    assert "polls.began" not in yard.workers["one"].log.read_text().partition(" ready.")[2]
    assert broker.refused() == []


def test_a_batch_is_stopped_by_remote_control(yard: Yard, broker: SecuredBroker) -> None:
    batch = yard.submit(marked("stopped", ROWS, "latency_ms=2000"))
    batch.until(lambda found: found.status == "in_progress", "it runs")
    batch.cancel()
    batch.ended("cancelled")
    assert broker.refused() == []


def celery(yard: Yard, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = yard.installation.environment() | {"GPUYARD_BROKER_URL": url}
    argv = [*CELERY, "app", *arguments]
    return subprocess.run(
        argv, env=environment, cwd=yard.folder, capture_output=True, text=True, timeout=90, check=False
    )


def test_the_control_plane_asks_workers_and_a_pools_account_asks_nobody(yard: Yard, broker: SecuredBroker) -> None:
    asked = celery(yard, broker.url("control"), "inspect", "ping", "--timeout", "5")
    assert "one@" in asked.stdout
    assert broker.refused() == []

    stolen = celery(yard, broker.url("gpu"), "control", "shutdown")
    assert stolen.returncode != 0
    refused = broker.refused()
    assert refused
    # It comes as far as the queue for its replies. That it may not publish either: tests/broker/test_broker_acl.py
    assert [
        each for each in refused if not re.match(r"gpuyard-gpu: multi [-0-9a-f]{36}\.reply\.celery\.pidbox", each)
    ] == []
    assert yard.workers["one"].alive
    with broker.admin() as admin:
        admin.acl_log_reset()


def test_flower_sees_the_pools_worker(yard: Yard, broker: SecuredBroker) -> None:
    def seen() -> bool:
        found = httpx.get(f"{yard.ready['flower_url']}/api/workers", params={"refresh": 1}, timeout=30)
        return any(name.startswith("one@") for name in found.json())

    until(seen, "Flower shows the worker", seconds=60)
    assert broker.refused() == []


def test_a_worker_whose_broker_has_anothers_certificate_says_so_and_works_by_polls(
    yard: Yard, broker: SecuredBroker
) -> None:
    worker = yard.worker("wary", broker_url=broker.url("gpu", host="127.0.0.2"))
    worker.until_it_says("certificate verify failed")
    worker.until_it_says("polls.began")
    log = worker.log.read_text()
    line = next(each for each in log.splitlines() if "certificate verify failed" in each)
    assert "Trying again" in log
    assert "not valid for '127.0.0.2'" in line
    assert "Traceback" not in log
    assert password_of("gpu") not in unquote(log)
    assert worker.stop() == 0


def test_a_worker_with_another_pools_account_says_what_is_refused_and_takes_its_time(
    yard: Yard, broker: SecuredBroker
) -> None:
    with broker.admin() as redis:
        account = (user_of("other"), "reset", f">{password_of('other')}", *rules_of("other"))
        redis.execute_command("ACL", "SETUSER", *account)
        worker = yard.worker("astray", broker_url=broker.url("other"))
        worker.until_it_says("tried again in 2 s")
        worker.until_it_says("polls.began")
        log = worker.log.read_text()
        assert worker.stop() == 0
        redis.execute_command("ACL", "LOG", "RESET")
    said = [line for line in log.splitlines() if "refuses its account" in line]
    assert "permissions" in said[0]
    assert "gpuyard broker acl" in said[0]
    assert len(said) == 2


def test_a_broker_whose_authority_is_not_known_is_refused(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ssl_ca_certs` adds to what is trusted anyhow."""
    monkeypatch.delenv("SSL_CERT_FILE")
    other = make_authority(tmp_path / "other")
    with (
        Connection(broker.url("gpu", ca=other.ca)) as connection,
        pytest.raises(OperationalError, match="unable to get local issuer certificate"),
    ):
        connection.ensure_connection(max_retries=1, interval_start=0)
    with Connection(broker.url("gpu")) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_a_command_that_does_not_trust_the_api_says_what_to_set(yard: Yard) -> None:
    environment = yard.installation.environment() | {
        "GPUYARD_API_KEY": yard.ready["api_key"],
        "GPUYARD_SERVER_URL": yard.url,
    }
    environment.pop("SSL_CERT_FILE")
    done = subprocess.run(
        [*GPUYARD, "pool", "list"], env=environment, cwd=yard.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is not trusted here" in done.stderr
    assert "SSL_CERT_FILE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_command_drains_the_worker_over_tls(yard: Yard, broker: SecuredBroker) -> None:
    done = yard.command("worker", "drain", "one", "--wait")
    assert done.returncode == os.EX_OK, done.stderr
    until(lambda: not yard.workers["one"].alive, "the worker has left")
    assert yard.workers["one"].exit_code == 0
    assert broker.refused() == []
