"""The order of files, and what is kept between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests import turns
from tests.kept import Kept


def items(*names: str) -> list[Any]:
    return [SimpleNamespace(nodeid=f"tests/{name}") for name in names]


def test_longer_files_come_first_whole_and_in_their_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "together", lambda file: "tests/kept" if "kept" in file else file)
    monkeypatch.setattr(turns, "seconds", lambda: {"tests/b.py": 5.0, "tests/kept1.py": 4.0, "tests/kept2.py": 3.0})
    found = items("a.py::1", "b.py::2", "kept1.py::1", "b.py::1", "kept2.py::1", "a.py::2")
    turns.longest_first(found)
    names = [item.nodeid.removeprefix("tests/") for item in found]
    assert names == ["kept1.py::1", "kept2.py::1", "b.py::2", "b.py::1", "a.py::1", "a.py::2"]


def test_files_that_ask_for_one_yard_stay_together() -> None:
    queue, rows, broker = (turns.together(f"tests/e2e/test_{name}.py") for name in ("queue", "rows", "broker"))
    assert queue == rows != broker
    assert queue.startswith(turns.YARDS)
    assert turns.together("tests/domain/test_timing.py") == "tests/domain/test_timing.py"


def test_one_thing_is_kept_until_another_is_asked_for() -> None:
    said: list[str] = []

    def thing(name: str) -> Any:
        @contextmanager
        def make() -> Iterator[str]:
            said.append(f"{name} starts")
            yield name
            said.append(f"{name} ends")

        return make

    kept = Kept()
    assert [kept.get("one", thing("one")), kept.get("one", thing("again"))] == ["one", "one"]
    assert kept.get("two", thing("two")) == "two"
    assert said == ["one starts", "one ends", "two starts"]
    kept.close()
    assert said[-1] == "two ends"
    assert kept.get("two", thing("three")) == "three"
    kept.close()
