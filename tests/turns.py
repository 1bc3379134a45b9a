"""Which files run when, where two processes share a suite: one takes the long ones, the other the many short ones.

Long files wait for real processes most of their time, short ones compute: side by side they use both cores, and only
one whole yard starts at a time. They meet in the middle, so that neither process is alone at the end.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]
SECONDS = ROOT / "tests" / "seconds.txt"
"""What files took, longest first; `pytest --keep-seconds` writes it anew. A file that is not in it counts as short."""
SHARED = {
    "shared_yard: Yard": "shared yard",
    "breakable_yard: Yard": "breakable yard",
    "fleet_yard: Yard": "fleet yard",
    "yard: Commands": "served installation",
    "served: Installation": "served installation",
}
"""How a test asks for what starts once (tests.kept). Files that ask for one thing stay together, or each process
would start it."""


@cache
def seconds() -> dict[str, float]:
    """The seconds that are kept, by file."""
    lines = (line.split() for line in SECONDS.read_text().splitlines() if not line.startswith("#"))
    return {file: float(number) for number, file in lines}


@cache
def together(file: str) -> str:
    """What a file belongs to: itself, or the yard that it shares with others."""
    text = (ROOT / file).read_text()
    return next((kept for words, kept in SHARED.items() if words in text), file)


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Sort whole files: those that belong together as one, and the order within each as it is."""
    length: dict[str, float] = {}
    for file in {file_of(item) for item in items}:
        length[together(file)] = length.get(together(file), 0.0) + seconds().get(file, 0.0)
    items.sort(key=lambda item: (-length[together(file_of(item))], together(file_of(item))))


class FromBothEnds(LoadFileScheduling):
    """Every second process takes its files from the end of the list."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by number of tests it would be, which says nothing of their length

    def _split_scope(self, nodeid: str) -> str:
        return together(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
