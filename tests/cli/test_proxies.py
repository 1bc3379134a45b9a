"""Commands and workers on a machine whose way out is its company's proxy."""

import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.local.parts import Plan
from tests.authority import has_openssl, make_authority
from tests.commands import Commands
from tests.fakes.http_proxy import HttpProxy
from tests.fakes.public_api import FakePublicApi, Says
from tests.fakes.socks_proxy import SocksProxy

ELSEWHERE = "http://gpuyard.test:8765"
"""A host that only the proxy finds."""
POOL = {"name": "gpu", "default": True, "slots": {}, "max_load": None, "min_memory_gb": None, "max_losses": None}
POOLS = Says({"data": [POOL | {"timing": {}}], "has_more": False})


@pytest.fixture
def proxy(api: FakePublicApi) -> Iterator[HttpProxy]:
    api.says("GET /v1/pools", POOLS)
    with HttpProxy(to=int(api.url.rpartition(":")[2])) as found:
        yield found


def commands(home: Path, url: str, **more: str) -> Commands:
    return Commands(home, {"GPUYARD_SERVER_URL": url, "GPUYARD_API_KEY": "gk-any", "NO_PROXY": "", **more})


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_command_goes_through_the_proxy_of_the_environment(proxy: HttpProxy, tmp_path: Path, variable: str) -> None:
    done = commands(tmp_path, ELSEWHERE, **{variable: proxy.url}).run("pool", "list")

    assert (done.code, "gpu" in done.out) == (0, True), done.err
    assert [call.partition("?")[0] for call in proxy.asked] == [f"GET {ELSEWHERE}/v1/pools"]


@pytest.mark.skipif(not has_openssl(), reason="there is no openssl to make certificates with")
def test_tls_goes_through_it_from_end_to_end(api: FakePublicApi, proxy: HttpProxy, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    (tmp_path / "server.ext").write_text("subjectAltName=DNS:gpuyard.test\n")
    sign = "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 1 -extfile server.ext -out server.pem"
    subprocess.run(sign.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    api._server.socket = context.wrap_socket(api._server.socket, server_side=True)
    told = commands(tmp_path, "https://gpuyard.test", HTTPS_PROXY=proxy.url, SSL_CERT_FILE=str(tmp_path / "ca.pem"))
    done = told.run("pool", "list")

    assert (done.code, "gpu" in done.out) == (0, True), done.err
    assert proxy.asked == ["CONNECT gpuyard.test:443"]


@pytest.mark.parametrize("kind", ["socks5", "socks5h"])
def test_a_socks_proxy_is_one_too_and_looks_names_up(proxy: HttpProxy, tmp_path: Path, kind: str) -> None:
    """As of `ssh -D`, for commands and workers."""
    with SocksProxy(proxy.to) as socks:
        way = {"ALL_PROXY": f"{kind}://{socks.place}", "GPUYARD_STATE_DIR": str(tmp_path / "worker")}
        done = commands(tmp_path, ELSEWHERE, **way).run("pool", "list")
        commands(tmp_path, ELSEWHERE, **way).run("worker", "--transport", "http", "--runtime", "fake")

    assert (done.code, "gpu" in done.out) == (0, True), done.err
    assert len(socks.asked) > 1, "the worker asked, too"
    assert set(socks.asked) == {"gpuyard.test:8765"}


def test_a_worker_goes_through_it_too(proxy: HttpProxy, tmp_path: Path) -> None:
    more = {"HTTP_PROXY": proxy.url, "GPUYARD_STATE_DIR": str(tmp_path / "worker")}
    done = commands(tmp_path, ELSEWHERE, **more).run("worker", "--transport", "http", "--runtime", "fake")

    assert done.code == 1, "this API knows no workers"
    assert f"POST {ELSEWHERE}/workers/register" in proxy.asked, done.err


def test_doctor_looks_the_way_that_commands_go(api: FakePublicApi, proxy: HttpProxy, tmp_path: Path) -> None:
    api.says("GET /readyz", Says({"ready": True, "parts": {}}))
    done = commands(tmp_path, ELSEWHERE, HTTP_PROXY=proxy.url).run("doctor", "--json", GPUYARD_RUNTIME="fake")

    found = {finding["part"]: finding for finding in done.document["findings"]}
    assert found["server"]["level"] == "ok"
    assert f"GET {ELSEWHERE}/readyz" in proxy.asked


def test_this_machine_and_what_no_proxy_names_are_asked_directly(
    api: FakePublicApi, proxy: HttpProxy, tmp_path: Path
) -> None:
    here = commands(tmp_path, api.url, HTTP_PROXY=proxy.url, ALL_PROXY=proxy.url).run("pool", "list")
    named = commands(tmp_path, ELSEWHERE, HTTP_PROXY=proxy.url, NO_PROXY=".test").run("pool", "list")

    assert (here.code, named.code, proxy.asked) == (0, 5, [])


def test_what_runs_on_this_machine_is_asked_directly_under_any_name(proxy: HttpProxy, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "local.json").write_text(json.dumps({"url": ELSEWHERE, "api_key": "gk-any"}))
    done = Commands(tmp_path, {"HTTP_PROXY": proxy.url, "NO_PROXY": ""}).run("pool", "list")
    plan = Plan(tmp_path, ELSEWHERE, "redis://", "gpu", {})

    assert (done.code, proxy.asked) == (5, []), done.err
    assert plan.worker(1, key="gk-any", locks=()).env["no_proxy"].endswith("gpuyard.test:8765")


def test_a_proxy_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    done = commands(tmp_path, ELSEWHERE, HTTP_PROXY="http://me:secret@127.0.0.1:1").run("pool", "list")

    assert done.code == 5
    assert "through the proxy http://me:***@127.0.0.1:1" in done.err
    assert "secret" not in done.err


def test_a_proxy_of_another_kind_is_refused_in_one_line(tmp_path: Path) -> None:
    done = commands(tmp_path, ELSEWHERE, ALL_PROXY="socks4://me:secret@127.0.0.1:1").run("pool", "list")

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "NO_PROXY" in done.err
    assert "secret" not in done.err
