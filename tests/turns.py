"""Which files run when, where processes share a suite: one takes what starts yards, the others what computes.

Tests of yards wait for real processes most of their time: beside others they use all cores, and beside each other they
would start two yards at once. Whoever is through with one kind takes of the other. Of each kind the longest come first,
so that none is alone at the end.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]
SECONDS = ROOT / "tests" / "seconds.txt"
"""What files took, longest first; `pytest --keep-seconds` writes it anew. A file that is not in it counts as short."""
YARDS = tuple(f"tests/{folder}/" for folder in ("broker", "chaos", "cli", "e2e", "examples"))
SHARED = {
    "shared_yard: Yard": "tests/e2e/ in the shared yard",
    "breakable_yard: Yard": "tests/e2e/ in the breakable yard",
    "fleet_yard: Yard": "tests/e2e/ in the yards of fleets",
    "yard: Commands": "tests/cli/ in the served installation",
    "served: Installation": "tests/cli/ in the served installation",
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


class TwoKinds(LoadFileScheduling):
    """The first process takes what starts yards, the others take the rest, for as long as there is any."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by number of tests it would be, which says nothing of their length

    def _split_scope(self, nodeid: str) -> str:
        return together(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        is_first = node is self.nodes[0]
        wanted = (files for files in self.workqueue if files.startswith(YARDS) is is_first)
        self.workqueue.move_to_end(next(wanted, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)
