"""What `gpuyard up` makes of its API's certificate: one that is not trusted never will be, so it is told at once."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.local.control_plane import CertificateRefused, ControlPlane
from tests.authority import Authority, has_openssl, make_authority
from tests.commands import Commands
from tests.fakes.public_api import FakePublicApi, Says

pytestmark = pytest.mark.skipif(not has_openssl(), reason="there is no openssl to make certificates with")


def sign_for_another_address(authority: Authority) -> None:
    (authority.folder / "server.ext").write_text("subjectAltName=IP:192.0.2.1\n")
    sign = "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 1 -extfile server.ext -out server.pem"
    subprocess.run(sign.split(), cwd=authority.folder, check=True, capture_output=True)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Where somebody shows a certificate for another address, of an authority in `tmp_path`, and says no more."""
    authority = make_authority(tmp_path)
    sign_for_another_address(authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)

    def serve(listener: socket.socket) -> None:
        # It ends when the listener is shut down.
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with suppress(OSError), context.wrap_socket(connection, server_side=True) as shown:
                    shown.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(30)


def refused(url: str) -> str:
    control_plane = ControlPlane(url, key="gk-any")
    try:
        with pytest.raises(CertificateRefused) as told:
            control_plane.ready()
    finally:
        control_plane.close()
    return str(told.value)


def test_an_authority_that_is_not_known_here_is_named_as_the_reason(port: int) -> None:
    assert refused(f"https://127.0.0.1:{port}") == "unable to get local issuer certificate"


def test_an_address_that_is_not_in_the_certificate_is_named_as_the_reason(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    assert "certificate is not valid for '127.0.0.1'" in refused(f"https://127.0.0.1:{port}")


def test_a_command_that_trusts_the_authority_is_not_only_told_to_do_so(port: int, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{port}"
    settings = {"GPUYARD_SERVER_URL": url, "GPUYARD_API_KEY": "gk-any", "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    done = Commands(tmp_path, settings).run("pool", "list")

    assert done.code == 1
    assert "certificate is not valid for '127.0.0.1'. It has to name that address" in done.err
    assert done.err.count("\n") == 1


def test_a_proxy_of_the_environment_is_not_asked_for_the_api_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine behind a company's proxy, which knows no way to our loopback."""
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with FakePublicApi() as api:
        api.says("GET /readyz", Says({"ready": True}))
        control_plane = ControlPlane(api.url, key="gk-any")
        try:
            assert control_plane.ready()
        finally:
            control_plane.close()


def test_an_api_that_does_not_listen_yet_is_only_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        free = held.getsockname()[1]
    control_plane = ControlPlane(f"https://127.0.0.1:{free}", key="gk-any")
    try:
        assert not control_plane.ready()
    finally:
        control_plane.close()
