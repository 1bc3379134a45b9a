"""The diagrams of docs/lifecycle.md are the transition tables of app/domain, arrow for arrow."""

import importlib
import re
from pathlib import Path

import pytest

from app.domain.workers import PHASES

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"
NOUNS = ["batches", "jobs", "leases", "workers"]
ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)


def drawn(name: str) -> set[tuple[str, str]]:
    _, marker, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    assert marker, f"no diagram of {name}"
    diagram, end, _ = rest.partition("<!-- end -->")
    assert end, f"the diagram of {name} has no end"
    return set(ARROW.findall(diagram))


@pytest.mark.parametrize("noun", NOUNS)
def test_the_diagram_shows_exactly_the_table(noun: str) -> None:
    table = importlib.import_module(f"app.domain.{noun}").TRANSITIONS
    assert drawn(f"transitions: {noun}") == {(before.value, after.value) for before in table for after in table[before]}


def test_the_diagram_of_phases_shows_exactly_their_table() -> None:
    assert drawn("phases") == {(before.value, after.value) for before in PHASES for after in PHASES[before]}


def test_every_table_has_a_diagram() -> None:
    rules = PAGE.parents[1] / "app" / "domain"
    with_tables = {path.stem for path in rules.glob("*.py") if "\nTRANSITIONS" in path.read_text(encoding="utf-8")}
    assert with_tables == set(NOUNS)
