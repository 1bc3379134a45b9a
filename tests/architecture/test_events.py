"""The list of events in app/domain/events.py is what the use cases write: nothing else, and all of it."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from app.domain.events import MEANINGS

ROOT = Path(__file__).parents[2]
NOUNS = {"batch", "file", "job", "lease", "model", "org", "pool", "service", "token", "webhook", "worker"}
NAME = re.compile(rf"({'|'.join(sorted(NOUNS))})\.[a-z_]+")
STATES = {"batch": "BatchState", "lease": "LeaseState", "worker": "WorkerState"}
# A batch's leases are told to stop all at once, and `batch.stopping` counts them.
NEVER_ENTERED_BY_A_MOVE = {"batch.validating", "lease.held", "lease.stopping", "worker.joining"}


def written() -> set[str]:
    return {name for path in (ROOT / "app" / "services").glob("*.py") for name in names_in(path)}


def names_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            yield node.value
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            noun = str(node.values[0].value).removesuffix(".")
            if noun in STATES and len(node.values) == 2:
                yield from states_of(noun)


def states_of(noun: str) -> set[str]:
    rules = importlib.import_module(f"app.domain.{'batches' if noun == 'batch' else noun + 's'}")
    return {f"{noun}.{state.value}" for state in getattr(rules, STATES[noun])} - NEVER_ENTERED_BY_A_MOVE


def test_every_event_that_is_written_is_listed_with_its_meaning() -> None:
    assert not written() - set(MEANINGS)


def test_every_event_that_is_listed_is_written() -> None:
    assert not set(MEANINGS) - written()
