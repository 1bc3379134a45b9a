import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ID = re.compile(r"\b[A-Z]{1,2}-\d\d\b")
LISTED = re.compile(r"^\| ([A-Z]{1,2}-\d\d) \| (.+) \|$", re.MULTILINE)


def cited() -> set[str]:
    here = Path(__file__)
    return {
        found
        for folder in ("app", "tasks", "executors", "config", "tests", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if path != here
        for found in ID.findall(path.read_text(encoding="utf-8"))
    }


def listed() -> list[tuple[str, str]]:
    return LISTED.findall((ROOT / "docs" / "reference" / "behaviours.md").read_text(encoding="utf-8"))


def test_every_requirement_the_code_cites_is_restated_in_one_line() -> None:
    missing = cited() - {name for name, _ in listed()}
    assert not missing, f"add to docs/reference/behaviours.md: {', '.join(sorted(missing))}"


def test_every_requirement_is_listed_once_and_in_order() -> None:
    names = [name for name, _ in listed()]
    assert names == sorted(set(names))
