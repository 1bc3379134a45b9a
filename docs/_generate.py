"""Write the generated pages of docs/reference, or check that they are what the code says.

Usage: python docs/_generate.py [--check]

Each page has one function that returns its whole text. Nothing here knows a fact of its own: pages are made from the
settings classes, the event names and the OpenAPI document.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

REFERENCE = Path(__file__).parent / "reference"

PAGES: dict[str, Callable[[], str]] = {}


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
