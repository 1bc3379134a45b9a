"""`celery` as `gpuyard up` starts it: Celery's own commands, and nobody else's."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands(module: str) -> set[str]:
    """The commands that its help lists."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return {line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()}


def test_it_has_the_commands_of_celery_and_not_flowers() -> None:
    quick, plain = commands("app.local.celery_command"), commands("celery")
    assert quick >= {"worker", "beat", "inspect"}
    assert plain - quick == {"flower"}
