"""A large batch some of whose rows fail in four ways, run again by commands: all of it is right, and memory is flat."""

import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rows import carries_its_own_mark, counts, custom_ids, lines, row
from tests.e2e.submitted import Submitted
from tests.e2e.yard import GPUYARD, Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = int(os.environ.get("GPUYARD_TEST_ROWS", "5000"))
MIB = 1024
MAX_GROWTH = 24
"""MiB that a process may have grown at most when the batch was ten times as large."""
BAD = (3, 37, 71)
"""These of a hundred rows fail: the first time they run, or always where they ask for a stream."""
KINDS = (
    "400 invalid_request_error too_long",
    "400 invalid_request_error bad_image",
    "422 mock_error 422",
    "UNSUPPORTED_PARAMETER",
)
WEIGH = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
log = logging.getLogger("figures")


@pytest.fixture(scope="module")
def yard(large_yard: Yard) -> Yard:
    return large_yard


def refused(code: str) -> str:
    body = json.dumps({"error": {"message": f"it is {code}", "type": "invalid_request_error", "code": code}})
    return f"status=400;times=1;raw={body}"


def mixed(prefix: str, count: int) -> bytes:
    def one(number: int) -> dict[str, Any]:
        if number % 100 not in BAD:
            return row(prefix, number)
        kind = number // 100 % 4
        if kind == 3:
            return row(prefix, number, stream=True)
        return row(prefix, number, (refused("too_long"), refused("bad_image"), "status=422;times=1")[kind])

    return lines(one(number) for number in range(count))


def peak(pid: int) -> int:
    """The most memory a process ever had, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) // MIB


def command(yard: Yard, *arguments: str) -> tuple[str, int]:
    """Run `gpuyard …` to its end; what it prints, and the most memory it had in MiB.

    A process has what the one that it was forked from has, until it becomes another program: so a small one starts it.
    """
    env = yard.installation.environment() | {"GPUYARD_SERVER_URL": yard.url, "GPUYARD_API_KEY": yard.ready["api_key"]}
    argv = [sys.executable, "-c", WEIGH, *GPUYARD, *arguments]
    done = subprocess.run(argv, env=env, cwd=yard.folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, int(done.stderr.split()[-1]) // MIB


def run_again(yard: Yard, prefix: str, count: int) -> int:
    """Run a batch, run its failed rows again, and check all of it; the most memory a command had in MiB."""
    first = yard.submit(mixed(prefix, count))
    first.ended(seconds=900)
    bad = [number for number in range(count) if number % 100 in BAD]
    kinds = {kind: sum(number // 100 % 4 == n for number in bad) for n, kind in enumerate(KINDS)}
    assert counts(first) == (count, count - len(bad), len(bad))
    assert {each["code"]: each["count"] for each in first.inner()["top_errors"]} == kinds
    listed = json.loads(command(yard, "batch", "errors", first.id, "--json")[0])
    assert (listed["rows"], {each["code"]: each["count"] for each in listed["data"]}) == (len(bad), kinds)
    began = time.monotonic()
    retry_id, retry_peak = command(yard, "batch", "retry", first.id)
    seconds = time.monotonic() - began
    again = Submitted(yard.sdk, yard.http, retry_id.strip())
    again.ended(seconds=300)
    always = kinds["UNSUPPORTED_PARAMETER"]
    assert counts(again) == (len(bad), len(bad) - always, always)
    assert custom_ids(again.results()) == [f"{prefix}-{number}" for number in bad]

    _, results_peak = command(yard, "batch", "results", first.id, "--with-retries", "-o", f"{prefix}.jsonl")
    number = failed = 0
    with (yard.folder / f"{prefix}.jsonl").open() as merged:
        for number, text in enumerate(merged, start=1):
            line = json.loads(text)
            assert line["custom_id"] == f"{prefix}-{number - 1}"
            failed += line["error"] is not None
            assert line["error"] is not None or carries_its_own_mark(line)
    assert (number, failed) == (count, always)
    log.info(
        "%d rows: retry of %d made in %.1f s; commands' peaks %s MiB",
        count,
        len(bad),
        seconds,
        (retry_peak, results_peak),
    )
    return max(retry_peak, results_peak)


def test_failed_rows_of_a_large_batch_run_again_and_memory_does_not_follow_its_size(yard: Yard) -> None:
    small = run_again(yard, "small", ROWS // 10)
    api = peak(yard.pid("api"))
    large = run_again(yard, "large", ROWS)
    grown = {"api": peak(yard.pid("api")) - api, "commands": large - small}
    log.info("API %d MiB, then %d more; commands %d MiB, then %d more", api, grown["api"], small, grown["commands"])
    assert all(mib <= MAX_GROWTH for mib in grown.values()), grown
