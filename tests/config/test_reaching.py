"""How the API is reached: what no call could do is told of the setting, before any, and never shows a key."""

from pathlib import Path

import pytest

from config.errors import SettingsError
from config.settings import ClientSettings, ServerSettings, WorkerSettings, load

CERTIFICATE = Path(__file__).parents[1] / "fakes" / "tls" / "cert.pem"


@pytest.mark.parametrize("role", [ClientSettings, WorkerSettings])
def test_the_line_ends_of_files_are_no_part_of_url_and_key(
    role: type[ClientSettings | WorkerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_API_KEY", " gk-word\r\n")
    monkeypatch.setenv("GPUYARD_SERVER_URL", "http://127.0.0.1:8765/v1/\r\n")
    settings = load(role)
    assert settings.server_url == "http://127.0.0.1:8765"
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "gk-word"


@pytest.mark.parametrize("key", ["gk-schl\N{LATIN SMALL LETTER U WITH DIAERESIS}ssel", "gk-a\nx: y", " ", "gk-\udcff"])
@pytest.mark.parametrize("name", ["api_key", "bootstrap_token"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(name: str, key: str) -> None:
    role = ClientSettings if name == "api_key" else ServerSettings
    with pytest.raises(SettingsError, match=name) as told:
        load(role, cli={name: key})
    assert "gk-" not in str(told.value)


def test_the_first_admins_key_is_the_one_that_a_client_can_send() -> None:
    found = load(ServerSettings, cli={"bootstrap_token": "gk-word\r\n"}).bootstrap_token
    assert found is not None
    assert found.get_secret_value() == "gk-word"


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://host:99999", "http://a b", "https://:8765", "ftp://x"]
)
@pytest.mark.parametrize("role", [ClientSettings, WorkerSettings])
def test_what_is_no_url_is_told_of_the_setting(role: type[ClientSettings], url: str) -> None:
    with pytest.raises(SettingsError, match="server_url"):
        load(role, cli={"server_url": url})


@pytest.mark.parametrize("content", [None, b"", b"no certificate"], ids=["missing", "empty", "text"])
def test_authorities_that_cannot_be_read_are_named_where_https_is_spoken(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authority.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(SettingsError, match=r"SSL_CERT_FILE names .*authority\.pem"):
        load(WorkerSettings, cli={"server_url": "https://gpuyard.example.org"})
    with pytest.raises(SettingsError, match=r"SSL_CERT_FILE names .*authority\.pem"):
        load(ServerSettings, cli={"tls_cert": CERTIFICATE, "tls_key": CERTIFICATE.with_name("key.pem")})
    assert load(WorkerSettings, cli={"server_url": "http://127.0.0.1:1"}).server_url == "http://127.0.0.1:1"
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    assert load(WorkerSettings, cli={"server_url": "https://a:1"}).server_url == "https://a:1"
