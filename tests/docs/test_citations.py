"""What code and pages name is there: the cited sections, the files, the tests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    "DESIGN": "docs/design.md",
    "PROTOCOL": "docs/protocol.md",
    "OPENAI_CONTRACT": "docs/reference/openai.md",
    "INPUTS": "docs/reference/inputs.md",
    "PERFORMANCE": "docs/performance.md",
}
NUMBER = r"\d+(?:\.\d+)?"
CITATION = re.compile(rf"\b({'|'.join(PAGES)}),? ({NUMBER}(?:(?:, | to | and ){NUMBER})*)(?![\w-])")
"""A page's name and its sections: "PROTOCOL 5", "PROTOCOL 1, 2 and 4", "OPENAI_CONTRACT 1.1 to 1.7"."""
STRANGE = re.compile(r"\b(?!HTTP\b)(?!RFC\b)([A-Z][A-Z_]{4,}) \d")
"""Something in capitals with a number reads like a citation of a page that nobody has."""
HEADING = re.compile(rf"^## ({NUMBER})\.? \S", re.MULTILINE)
NAMED_FILE = re.compile(r"`((?:app|tasks|executors|config|tests|docs|examples|locks|changelog\.d)/[\w./-]+)`")
NAMED_TEST = re.compile(r"`(test_\w+)`")


def sources() -> Iterator[tuple[str, str]]:
    """Every module with its text, but for this one."""
    for folder in ("app", "tasks", "executors", "config", "tests", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != Path(__file__):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def sections(name: str) -> list[str]:
    return HEADING.findall((ROOT / PAGES[name]).read_text(encoding="utf-8"))


def test_every_cited_section_is_on_its_page() -> None:
    missing = [
        f"{path}: {name} {number}"
        for path, text in sources()
        for name, numbers in CITATION.findall(text)
        for number in re.findall(NUMBER, numbers)
        if number not in sections(name)
    ]
    assert not missing


def test_no_module_cites_a_page_that_is_not_in_the_repository() -> None:
    strange = {
        f"{path}: {name}"
        for path, text in sources()
        for line in text.splitlines()
        if line.lstrip().startswith(("#", '"""', 'r"""', "Source:"))
        for name in STRANGE.findall(line)
        if name not in PAGES
    }
    assert not strange


@pytest.mark.parametrize("name", PAGES)
def test_the_sections_of_a_cited_page_count_up(name: str) -> None:
    found = sections(name)
    prefix = "1." if name == "OPENAI_CONTRACT" else ""
    assert found == [f"{prefix}{number}" for number in range(1, len(found) + 1)]


def test_every_file_and_folder_that_a_page_names_exists() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        for name in NAMED_FILE.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert not missing


def test_every_test_that_a_page_names_exists() -> None:
    defined = {name for _, text in sources() for name in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE)}
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        for name in NAMED_TEST.findall(page.read_text(encoding="utf-8"))
        if name not in defined
    ]
    assert not missing
