"""`celery -A app flower` as it is typed: its pages ask for no password, so it keeps to this machine and to reading."""

import json
import os
import subprocess
import sys
from pathlib import Path

LOOK = """
import json, sys
import app.celery
from flower.command import apply_env_options, apply_options, options

found = []
for argv in ([], ["--address=0.0.0.0", "--read_only=false"]):
    apply_env_options()
    apply_options("flower", argv)
    found.append([options.address, options.read_only])
print(json.dumps(found))
"""


def test_it_listens_on_the_loopback_and_changes_nothing_unless_it_is_told(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLOWER_", "GPUYARD_"))}
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env=inherited | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["127.0.0.1", True], ["0.0.0.0", False]]  # noqa: S104 - compared, not bound
