"""Write the generated pages of docs/reference, or check that they are what the code says.

Usage: python docs/_generate.py [--check]

Each page has one function that returns its whole text. Nothing here knows a fact of its own: pages are made from the
settings classes, the event names and the OpenAPI document.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from config import reference

REFERENCE = Path(__file__).parent / "reference"

HEAD = "<!-- Written by `make docs`. Change the code, not this page. -->\n\n"


def settings_page() -> str:
    """Every setting of every process, in the order of the classes."""
    lines = [
        "# Settings",
        "",
        "Command line > environment > file > default. The file is `gpuyard.toml`: the one named by `--config`, else",
        "`/etc/gpuyard/gpuyard.toml`, else `~/.config/gpuyard/gpuyard.toml`; its keys are the names of this table.",
        "Read once, when a process starts; an unknown name is an error that says the nearest known one.",
        "`gpuyard config show` prints each value and where it came from.",
        "",
        "| setting | environment | default | read by | meaning |",
        "|---|---|---|---|---|",
    ]
    for row in reference.rows():
        default = f"`{row.default}`" if row.default else ""
        cells = (f"`{row.name}`", f"`{row.variable}`", default, ", ".join(row.roles), row.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {"settings.md": settings_page}


def main() -> int:
    """Write every page, or with --check name those that differ. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Write or check the generated pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is out of date")
    check: bool = parser.parse_args().check
    stale = []
    for name, text_of in PAGES.items():
        page = REFERENCE / name
        text = text_of()
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            page.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/reference/{name}: {'is out of date, run make docs' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
