"""Runs a rival: its own environment, its own script, the same file and the same engine."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.engine_process import Engine, Shape, engine
from benchmarks.inputs import check_output, input_file
from benchmarks.places import RIVALS, rival_python
from benchmarks.runs import Run


@dataclass(frozen=True)
class Rival:
    """A script in `rivals/<folder>/run.py`. `rows` scales the task: a slow one would need minutes."""

    name: str
    folder: str
    in_flight: int = 72
    part: float = 1.0  # of the rows the others get
    ordered: bool = False


AIOHTTP_64 = Rival("aiohttp, 64 in flight", "aiohttp_script", 64)
AIOHTTP_72 = Rival("aiohttp, 72 in flight", "aiohttp_script")
OPENAI = Rival("AsyncOpenAI + semaphore", "openai_sdk", part=0.33)
LITELLM = Rival("litellm.batch_completion", "litellm_batch", part=0.15, ordered=True)
CELERY = Rival("Celery, a task a row", "celery_rows", part=0.25, ordered=True)
HTTPX = Rival("one httpx.AsyncClient", "httpx_client", part=0.1)
ALL = (AIOHTTP_64, AIOHTTP_72, OPENAI, LITELLM, CELERY, HTTPX)


@dataclass(frozen=True)
class _Ended:
    """What a process and its children used. It may say what its worker alone did for the rows."""

    cpu_seconds: float
    peak_mib: float
    said: Mapping[str, float] = field(default_factory=dict)


def run_rival(rival: Rival, running: Engine, rows: int) -> Run:
    """Run it once and check every answer. Raises RuntimeError when it fails, WrongAnswers when it lies."""
    rows = max(1, round(rows * rival.part))
    running.reset()
    with tempfile.TemporaryDirectory(prefix="rival-") as folder:
        output = Path(folder) / "output.jsonl"
        ended = _start(rival, running.url, input_file(rows), output)
        with output.open("rb") as lines:
            check_output(lines, rows, ordered=rival.ordered)
        on_disk = output.stat().st_mtime
    stats = running.stats()
    everything = ended.cpu_seconds - start_cost(rival)
    return Run(
        client=rival.name,
        rows=rows,
        limit=running.shape.limit,
        inside_seconds=stats["span_seconds"],
        whole_seconds=on_disk - stats["first_at"],
        cpu_seconds={"client": ended.said.get("worker_cpu_seconds", everything), "everything": everything},
        peak_mib={"client": ended.peak_mib},
        requests=stats["requests"],
        max_waiting=stats["max_waiting"],
    )


@cache
def start_cost(rival: Rival) -> float:
    """CPU seconds of starting and importing: a task without rows. It is taken off, as the product's start is."""
    with engine(Shape(1, 1)) as idle, tempfile.TemporaryDirectory(prefix="rival-") as folder:
        return _start(rival, idle.url, input_file(0), Path(folder) / "output.jsonl").cpu_seconds


def _start(rival: Rival, url: str, task: Path, output: Path) -> _Ended:
    script = RIVALS / rival.folder / "run.py"
    given = {"--url": url, "--input": task, "--output": output, "--in-flight": rival.in_flight}
    command = [str(rival_python(rival.folder)), str(script), *(str(part) for pair in given.items() for part in pair)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GPUYARD_", "PYTHON"))}
    env = inherited | {"PYTHONPATH": str(RIVALS)}
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        process = subprocess.Popen(command, env=env, stdout=said, stderr=complained)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        complained.seek(0)
        if process.returncode:
            raise RuntimeError(f"{rival.name} ended with {process.returncode}: {complained.read()[-2000:].decode()}")
        told = said.read().strip()
    # The first line of a library may be its greeting; what we asked for is the last.
    last = told.splitlines()[-1] if told else b""
    return _Ended(
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_mib=used.ru_maxrss / 1024,
        said=json.loads(last) if last.startswith(b"{") else {},
    )
