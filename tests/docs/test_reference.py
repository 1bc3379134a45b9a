"""The generated pages are what the code says, and every link between pages leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

from config import reference

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)\s]*)?\)")


def test_generated_pages_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, "docs/_generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_setting_stands_in_the_reference_with_its_meaning() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    for row in reference.rows():
        assert f"`{row.variable}`" in page
        assert row.description, f"{row.name} has no description"


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").glob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken
