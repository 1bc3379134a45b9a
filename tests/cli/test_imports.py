"""A command waits for its own imports, and for no other's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("asyncio", "celery", "executors", "httpx", "pydantic", "redis", "rich")


@pytest.mark.parametrize(
    ("module", "may_have"),
    [
        ("app.cli.main", ()),
        ("app.cli.serve", ("rich",)),
        ("app.cli.submit", ("asyncio", "httpx", "pydantic", "rich")),
    ],
)
def test_it_imports_what_it_needs(module: str, may_have: tuple[str, ...]) -> None:
    look = f"import sys; import app.cli.main, {module}; print(*sorted({set(HEAVY)!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= set(may_have)
