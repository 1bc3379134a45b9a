import os
import subprocess
import sys
from pathlib import Path

import pytest

from executors.runtimes import openmp
from executors.runtimes.openmp import OpenMP


def loaded_from(environment: dict[str, str]) -> str:
    script = "import ctypes; ctypes.CDLL('libgomp.so.1'); print(open('/proc/self/maps').read())"
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return run.stdout


def test_a_system_without_openmp_gets_the_one_in_the_wheel() -> None:
    found = OpenMP(installed=False)
    assert "pykdtree.libs/libgomp" in loaded_from(dict(found.environment))
    folder = Path(found.environment["LD_LIBRARY_PATH"].split(os.pathsep)[-1])
    found.close()
    assert not folder.exists()


def test_a_system_with_openmp_uses_its_own() -> None:
    assert OpenMP(installed=True).environment is os.environ


def test_without_the_wheel_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert openmp.find_carried() is not None
    monkeypatch.setattr(openmp, "CARRIER", "no_such_package")
    assert OpenMP(installed=False).environment is os.environ
