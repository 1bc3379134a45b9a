import os
import subprocess
import sys

import pytest

PROBE = """
import importlib, importlib.abc, pkgutil, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sqlmodel", "sqlalchemy", "fastapi", "starlette", "alembic", "uvicorn"}:
            raise ModuleNotFoundError(f"{name} is not installed on a GPU machine", name=name)

sys.meta_path.insert(0, Refuse())
from app.celery import app
app.loader.import_default_modules()
for room in ("app.worker", "app.client", "app.cli", "executors"):
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, room + "."):
        importlib.import_module(module.name)
print(*sorted(name for name in app.tasks if not name.startswith("celery.")))
"""


@pytest.fixture(scope="module")
def probe() -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GPUYARD_BROKER_URL": "memory://"}
    return subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_the_worker_side_loads_where_the_database_and_the_web_framework_are_not_installed(
    probe: subprocess.CompletedProcess[str],
) -> None:
    assert probe.returncode == 0, probe.stderr
    assert "run_batch" in probe.stdout.split()


def test_the_worker_side_registers_no_task_of_the_control_side(probe: subprocess.CompletedProcess[str]) -> None:
    assert probe.returncode == 0, probe.stderr
    assert {"run_control", "sweep"}.isdisjoint(probe.stdout.split())
