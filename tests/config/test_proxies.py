"""Which way the API is called: by the proxy of the environment, or directly."""

import os

import pytest

from config.proxies import directly_to, proxy_for

URL = "https://gpu-host.example:8765"


@pytest.mark.parametrize("named", ["", "other.example", "*"])
def test_what_is_to_be_asked_directly_is(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """As `gpuyard up` has its workers ask: the API is this machine's own, under whatever name."""
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    assert proxy_for(URL) == "http://proxy.example:3128"
    monkeypatch.setenv("NO_PROXY", named)
    for name, value in directly_to(URL, os.environ).items():
        monkeypatch.setenv(name, value)
    assert proxy_for(URL) is None
    assert proxy_for("https://other.example") == (None if named else "http://proxy.example:3128")
    assert (proxy_for("https://third.example") is None) is (named == "*")


@pytest.mark.parametrize("url", ["http://api:8765", "http://127.0.0.1:8765", "http://[::1]:8765", "http://localhost:1"])
def test_no_proxy_knows_a_name_of_this_machine_or_its_containers(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert proxy_for(url) is None
    assert proxy_for("http://192.0.2.1:8765") == proxy_for("http://[fd00::1]:8765") == "http://proxy.example:3128"
