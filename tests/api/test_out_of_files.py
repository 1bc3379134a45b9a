"""A real API process that may open no more files: callers are told at once, and it goes on when it may again."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from app.cli import server_checks
from app.cli.connection import Address
from tests.api_process import ApiProcess, api_process
from tests.authority import has_openssl, make_authority
from tests.migrated import migrate
from tests.served import ADMIN_KEY

LACKS = "the API may open no more files and connections"


@contextmanager
def without_files(api: ApiProcess, until: Callable[..., None]) -> Iterator[None]:
    """Let it open no more files, and have callers that say nothing take those that are left."""
    process = psutil.Process(api.process.pid)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    folder = Path(f"/proc/{process.pid}/fd")
    limit = max(int(path.name) for path in folder.iterdir()) + 1
    process.rlimit(psutil.RLIMIT_NOFILE, (limit, hard))
    try:
        with ExitStack() as silent:
            while (count := len(list(folder.iterdir()))) < limit:
                silent.enter_context(socket.create_connection(api.address, timeout=10))
                until(lambda before=count: len(list(folder.iterdir())) > before)
            yield
            process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))


def test_callers_are_told_at_once_and_it_goes_on_by_itself(tmp_path: Path, until: Callable[..., None]) -> None:
    url = f"sqlite:///{tmp_path}/gpuyard.db"
    migrate(url)
    key = {"authorization": f"Bearer {ADMIN_KEY}"}
    with (
        api_process(url, tmp_path) as api,
        httpx.Client(base_url=api.url, headers=key, timeout=30) as before,
    ):
        assert before.get("/readyz").status_code == 200
        with without_files(api, until):
            until(lambda: httpx.get(f"{api.url}/readyz", timeout=5).status_code == 503)
            answer = httpx.get(f"{api.url}/v1/files", headers=key, timeout=5)
            assert (answer.status_code, answer.json()["error"]["message"]) == (503, f"{LACKS}; nothing was changed")
            assert answer.headers["retry-after"] == "2"
            upload = httpx.post(f"{api.url}/v1/files", headers=key, files={"file": bytes(1_000_000)}, timeout=5)
            assert upload.status_code == 503
            found = {each.part: each for each in server_checks.check_server(Address(api.url, ADMIN_KEY, "file"))}
            assert found["files"].level == "red"
            assert found["files"].text.startswith(LACKS)
            assert found["files"].do.startswith("raise its limit (LimitNOFILE=")
            kept = before.get("/readyz")
            assert kept.status_code == 503, "whoever was connected is answered"
            assert kept.json()["parts"]["files"].startswith(LACKS)
        until(lambda: httpx.get(f"{api.url}/readyz", timeout=5).status_code == 200)
        assert httpx.get(f"{api.url}/v1/files", headers=key, timeout=5).status_code == 200
    assert api.log.read_text().count("connections are refused") == 1


@pytest.mark.skipif(not has_openssl(), reason="certificates are made by openssl")
def test_callers_by_tls_are_told_as_well(tmp_path: Path, until: Callable[..., None]) -> None:
    url = f"sqlite:///{tmp_path}/gpuyard.db"
    migrate(url)
    made = make_authority(tmp_path / "authority")
    tls = {"GPUYARD_TLS_CERT": str(made.certificate), "GPUYARD_TLS_KEY": str(made.key)}
    trust = ssl.create_default_context(cafile=str(made.ca))
    with api_process(url, tmp_path, **tls) as api:
        assert httpx.get(f"{api.url}/readyz", verify=trust).status_code == 200
        with without_files(api, until):
            until(lambda: httpx.get(f"{api.url}/readyz", verify=trust, timeout=5).status_code == 503)
            answer = httpx.get(f"{api.url}/readyz", verify=trust, timeout=5)
            assert answer.json()["parts"]["files"].startswith(LACKS)
        until(lambda: httpx.get(f"{api.url}/readyz", verify=trust, timeout=5).status_code == 200)
