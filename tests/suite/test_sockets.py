"""Unit tests open no socket, the other rooms reach this machine only; tried on a suite of one test."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.sockets import close_by_room

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    close_by_room(item)
"""
PROBE = """
import socket

def test_it_reaches_out():
    with socket.socket(socket.AF_UNIX) as there:
        there.bind("there")
        there.listen()
        with socket.socket(socket.AF_UNIX) as here:
            here.connect("there")
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        socket.create_connection(there.getsockname()).close()
    try:
        socket.create_connection(("192.0.2.1", 9), timeout=0.1)
    except OSError:
        raise AssertionError("the packet left") from None
"""


def outcome(pytester: pytest.Pytester, room: str, monkeypatch: pytest.MonkeyPatch) -> str:
    tests = pytester.mkdir("tests")
    (tests / "sockets.py").write_text((TESTS / "sockets.py").read_text())
    (tests / "conftest.py").write_text(CONFTEST)
    folder = tests / room
    folder.mkdir()
    (folder / "test_probe.py").write_text(PROBE)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to import
    result = pytester.runpytest_subprocess("-p", "pytest_socket", "--import-mode=importlib", "-W", "error", tests)
    result.assert_outcomes(failed=1)
    return result.stdout.str()


def test_a_room_of_rules_opens_no_socket(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "A test tried to use socket.socket." in outcome(pytester, "domain", monkeypatch)


def test_every_other_room_reaches_the_loopback_and_no_further(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = outcome(pytester, "client", monkeypatch)
    assert 'with host "192.0.2.1"' in said
    assert "the packet left" not in said
