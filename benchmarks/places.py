"""Where the bench keeps what it builds and finds: `.bench/` in the repository, never committed."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCH = ROOT / ".bench"
ENGINE = BENCH / "bin" / "mock-engine"
LOAD = BENCH / "bin" / "load"
INPUTS = BENCH / "inputs"
RESULTS = BENCH / "results"
RIVALS = ROOT / "benchmarks" / "rivals"


def rival_python(name: str) -> Path:
    """The interpreter of a rival's own environment, made by `make bench-rivals`."""
    return BENCH / "rivals" / name / "bin" / "python"
