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


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://10.1.2.3:8765", "localhost, 10.0.0.0/8"),
        ("http://10.1.2.3:8765", "10.1.2.3"),
        ("https://api.corp.example", "*.corp.example"),
        ("https://api.corp.example", ".corp.example"),
        ("https://API.corp.example", "*.Corp.example"),
        ("https://api.corp.example", "other.example,*"),
        ("http://[fd00::5]:8765", "fd00::5"),
        ("http://[fd00::5]:8765", "[fd00::5]"),
        ("http://[fd00::5]:8765", "fd00::/8"),
    ],
)
def test_no_proxy_names_hosts_as_other_programs_read_it(monkeypatch: pytest.MonkeyPatch, url: str, named: str) -> None:
    """curl, Go and requests take networks and patterns; Python's own urllib takes neither."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", named)
    assert proxy_for(url) is None


@pytest.mark.parametrize("named", ["10.0.0.0/8", "*.corp.example", "corp.example", "fd00::/8,10.1.2.4", "10.1.2.3/x"])
def test_what_it_does_not_name_goes_through_the_proxy(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", named)
    for url in ("http://192.0.2.1:8765", "http://notcorp.example", "http://api.corp.example.org", "http://[fe80::1]:1"):
        assert proxy_for(url) == "http://proxy.example:3128", url
