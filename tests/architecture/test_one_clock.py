"""PROTOCOL 1: rules take the database's time. No module that holds a rule or SQL asks the process's clock."""

import ast
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "app"
ROOMS = ("domain", "db", "services", "sweeps")
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("time", "time")}
MODULES = sorted(path for room in ROOMS for path in (APP / room).rglob("*.py"))


def clocks(source: str) -> list[int]:
    """The lines that read the process's clock; `time.monotonic` measures durations and decides nothing of a rule."""
    tree = ast.parse(source)
    named = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and (_last(node.value), node.attr) in CLOCKS
    ]
    imported = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "time"
        and {"time", "time_ns"} & {a.name for a in node.names}
    ]
    return named + imported


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(APP)))
def test_no_rule_takes_the_processs_clock(path: Path) -> None:
    assert clocks(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.now(tz)",
        "import time\nx = time.time()",
        "from time import time",
        "f(default_factory=datetime.utcnow)",
    ],
)
def test_the_look_finds_every_spelling(source: str) -> None:
    assert clocks(source)
