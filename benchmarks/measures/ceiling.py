"""P0: the engine is never the limit. A client in C beside the fastest client in Python, rows taking no time at all."""

import json
import subprocess

from benchmarks.engine_process import Engine, Shape, engine
from benchmarks.places import LOAD
from benchmarks.rivals_run import AIOHTTP_64, run_rival
from benchmarks.targets import Finding

AT_ONCE = Shape(slots=64, latency_ms=1, more=("--latency-ms", "0"))
BODY_BYTES = 900


def ceiling(rounds: int, rows: int) -> list[Finding]:
    """Measure how many times faster the engine answers than the fastest Python client asks."""
    ratios = []
    with engine(AT_ONCE) as running:
        for _ in range(rounds):
            python = run_rival(AIOHTTP_64, running, rows)
            ratios.append(bare_rate(running, rows * 10) / (python.rows / python.inside_seconds))
    return [Finding.of("P0", ratios)]


def bare_rate(running: Engine, requests: int) -> float:
    """Requests a second of a closed loop in C over 64 connections."""
    command = [str(LOAD), str(running.port), "64", str(requests), str(BODY_BYTES)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = json.loads(done.stdout)
    return float(found["requests"] / found["seconds"])
