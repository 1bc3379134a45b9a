"""Each side declares what it imports: a GPU machine's slim install would find out too late."""

import ast
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OURS = {"app", "tasks", "executors", "config"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONTROL_SIDE = (
    "app/api",
    "app/services",
    "app/sweeps",
    "app/db",
    "app/blobs",
    "app/celery_control",
    "tasks/control",
    "tasks/sweeps",
)
FOR_TYPES_ONLY = {"_typeshed"}
LATER_STANDARD_LIBRARY = {"compression"}
"""Of Python 3.14, whose module of zstandard a backport brings to earlier ones."""
DISTRIBUTIONS = metadata.packages_distributions()


def declared(*extras: str) -> set[str]:
    """Give the distributions that the project asks for by name with these extras."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    wanted = [Requirement(line) for line in lines]
    # `celery[redis]` asks for redis by the name of celery's extra.
    return {canonicalize_name(name) for requirement in wanted for name in (requirement.name, *requirement.extras)}


def third_party(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - OURS - sys.stdlib_module_names - FOR_TYPES_ONLY - LATER_STANDARD_LIBRARY


def undeclared(path: Path, allowed: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for name in sorted(third_party(path))
        if not {canonicalize_name(found) for found in DISTRIBUTIONS.get(name, [name])} & allowed
    ]


@pytest.mark.parametrize(
    ("side", "extras"),
    [("worker", ("local", "embedded")), ("control", ("server", "postgres", "embedded"))],
)
def test_a_side_imports_only_what_its_install_brings(side: str, extras: tuple[str, ...]) -> None:
    allowed = declared(*extras)
    wrong = []
    for folder in sorted(OURS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            of_control = path.relative_to(ROOT).as_posix().startswith(CONTROL_SIDE)
            if of_control == (side == "control"):
                wrong += undeclared(path, allowed)
    assert not wrong
