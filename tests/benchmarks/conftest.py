"""The programs in C, built once: they are small."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import engine_process
from benchmarks.engine_process import Engine, Shape, start_engine
from benchmarks.places import ROOT

SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both: the engine under the compiler's own checks of memory and arithmetic, and the load."""
    if shutil.which("cc") is None:
        pytest.skip("the mock engine is C, and there is no C compiler here")
    folder = tmp_path_factory.mktemp("programs")
    flags = ["-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    engine = sorted(map(str, (ROOT / "benchmarks" / "engine").glob("*.c")))
    load = str(ROOT / "benchmarks" / "load" / "load.c")
    subprocess.run(["cc", *flags, *SANITIZED, "-o", folder / "mock-engine", *engine], check=True)
    subprocess.run(["cc", *flags, "-O2", "-o", folder / "load", load], check=True)
    return folder


@pytest.fixture
def start(programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    """Start engines with a shape; they end with the test, and must end well."""
    monkeypatch.setattr(engine_process, "ENGINE", programs / "mock-engine")
    running: list[Engine] = []

    def begin(slots: int, latency_ms: float, *more: str) -> Engine:
        running.append(start_engine(Shape(slots, latency_ms, more)))
        return running[-1]

    yield begin
    for engine in running:
        engine.process.terminate()
        assert engine.process.wait(10) == 0, "the checked engine found something wrong with itself"
