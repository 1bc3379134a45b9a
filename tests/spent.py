"""Where a run's time went, by file: real seconds, and the processor's, which a busy machine distorts least."""

import os
import resource
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from tests.turns import SECONDS

SHOWN = 25
WORTH_TELLING_SECONDS = 60.0
WORTH_KEEPING_SECONDS = 2.0
_CPU = "cpu_seconds"
_BEGUN = pytest.StashKey[float]()


class Spent:
    """A plugin: each test process measures, and the one that prints adds up."""

    def __init__(self, *, keep: bool) -> None:
        """`keep`: what the files took is written to where tests.turns reads it."""
        self._keep = keep
        self._began = time.monotonic()
        self._first_told: float | None = None
        self._real: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Look at the clock before any fixture of the test is made."""
        item.stash[_BEGUN] = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, pytest.TestReport]:
        """Have the last report of a test bring along what it cost, the processes that have ended included."""
        if call.when == "teardown" and _BEGUN in item.stash:
            item.user_properties.append((_CPU, round(cpu_seconds() - item.stash[_BEGUN], 3)))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up, where the reports of all processes arrive."""
        if self._first_told is None:
            self._first_told = time.monotonic() - report.duration
        file = report.location[0]
        self._real[file] += report.duration
        if report.when == "teardown":
            self._cpu[file] += dict(report.user_properties).get(_CPU, 0.0)  # type: ignore[arg-type]
            self._tests[file] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that took longest, and each folder."""
        if self._real.total() < WORTH_TELLING_SECONDS:
            return
        say = terminalreporter.write_line
        terminalreporter.write_sep("=", "where the time went")
        say("   real     CPU  tests")
        for file, _ in self._real.most_common(SHOWN):
            say(self._line(file, {file}))
        folders: dict[str, set[str]] = {}
        for file in self._real:
            folders.setdefault(file.rpartition("/")[0], set()).add(file)
        for folder, files in sorted(folders.items(), key=lambda pair: -sum(self._real[file] for file in pair[1])):
            say(self._line(f"{folder}/", files))
        say(self._line("all", set(self._real)))
        now = time.monotonic()
        collecting = (self._first_told or now) - self._began
        say(
            f"{now - self._began:.0f} s, {collecting:.0f} of them until the first test; "
            f"the tests kept {self._cpu.total() / (now - self._began):.1f} of {os.cpu_count()} processors busy"
        )
        if self._keep:
            first, *_ = SECONDS.read_text().splitlines()
            kept = [f"{real:.0f} {file}" for file, real in self._real.most_common() if real >= WORTH_KEEPING_SECONDS]
            SECONDS.write_text("\n".join([first, *kept]) + "\n")

    def _line(self, name: str, files: set[str]) -> str:
        real, cpu, tests = (sum(figures[file] for file in files) for figures in (self._real, self._cpu, self._tests))
        return f"{real:7.1f} {cpu:7.1f} {tests:6d}  {name}"


def cpu_seconds() -> float:
    """Seconds of the processor that this process and its ended children have used, user and system."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
