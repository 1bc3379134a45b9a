"""What a bench leaves: a JSON file, a table on the terminal, and a section of docs/performance.md with its plots."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.places import RESULTS, ROOT
from benchmarks.plots import bars
from benchmarks.runs import Run
from benchmarks.targets import Finding

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


@dataclass
class Report:
    """Gathered while the bench runs, so that a bench that fails half way has told what it found."""

    plan: str
    loose: bool
    findings: list[Finding] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    took: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, measure: str) -> Iterator[None]:
        """Note the seconds of a measure: a bench that takes too long is not run."""
        began = time.monotonic()
        yield
        self.took[measure] = round(time.monotonic() - began, 1)
        print(f"{measure} took {self.took[measure]:g} s", flush=True)

    def add(self, findings: Sequence[Finding]) -> None:
        """Take findings, and say them."""
        for finding in findings:
            self.findings.append(finding)
            print(self.line(finding), flush=True)

    def line(self, finding: Finding) -> str:
        target = finding.target
        bound = target.loose if self.loose else target.must
        word = {True: "ok", False: "BELOW", None: ""}[finding.verdict(loose=self.loose)]
        rounds = " ".join(f"{value:.3g}" for value in finding.rounds)
        return f"{finding.key:16} {finding.value:10.3f}  {target.shown(bound):8} {word:6} {target.what}  [{rounds}]"

    @property
    def missed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict(loose=self.loose) is False]

    def save(self) -> Path:
        """Write all of it below `.bench/results`."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{self.plan}-{time.strftime('%Y%m%d-%H%M%S')}.json"
        content = {
            "plan": self.plan,
            "commit": commit(),
            "machine": machine(),
            "seconds": round(time.monotonic() - self.began),
            "took": self.took,
            "findings": [{"key": f.key, "value": f.value, "rounds": f.rounds} for f in self.findings],
            "runs": {name: [run.as_json() for run in runs] for name, runs in self.runs.items()},
            "notes": self.notes,
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        return path


def commit() -> str:
    """The commit this runs on, marked when there is something on top of it. The pages that runs write do not count."""
    found = _git("describe", "--always", "--abbrev=10") or "unknown"
    return found + ("-dirty" if _git("status", "--porcelain", "--", ".", ":!docs") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607 - the developer's own
    return done.stdout.strip()


def machine() -> str:
    """Cores, processor and Python."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"


def write_page(saved: Path) -> None:
    """Put a saved bench into docs/performance.md, between its two marks, and draw its plots."""
    content = json.loads(saved.read_text())
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{_section(content)}\n{END}{after}")
    if content["runs"]:
        FIGURES.mkdir(exist_ok=True)
        medians = _medians(content["runs"])
        shares = {name: found["whole_share"] for name, found in medians.items()}
        cpu = {name: found["cpu_us"] for name, found in medians.items()}
        (FIGURES / "share.svg").write_text(bars("Share of the engine's limit, whole job", shares, "{:.2f}"))
        (FIGURES / "cpu.svg").write_text(bars("CPU a row in the client, µs", cpu, "{:.0f}"))


def _medians(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, float]]:
    found = {}
    for name, several in runs.items():
        part = "worker" if "worker" in several[0]["cpu_seconds"] else "client"
        found[name] = {
            "whole_share": median(run["whole_share"] for run in several),
            "share": median(run["share"] for run in several),
            "cpu_us": median(run["cpu_seconds"][part] / run["rows"] * 1e6 for run in several),
            "all_us": median(run["cpu_seconds"]["everything"] / run["rows"] * 1e6 for run in several),
            "peak": median(run["peak_mib"][part] for run in several),
            "rate": median(run["rows"] / run["whole_seconds"] for run in several),
        }
    return dict(sorted(found.items(), key=lambda item: -item[1]["whole_share"]))


def _section(content: Mapping[str, Any]) -> str:
    lines = [
        f"Plan `{content['plan']}`, commit `{content['commit']}`, {content['machine']}, {content['seconds']} s.",
        "",
        "| target | measured | must | goal | rounds |",
        "|---|---|---|---|---|",
    ]
    for entry in content["findings"]:
        finding = Finding(entry["key"], entry["value"], tuple(entry["rounds"]))
        target = finding.target
        missed = "" if finding.verdict(loose=False) in {True, None} else " **below**"
        rounds = ", ".join(f"{value:.3g}" for value in finding.rounds)
        bounds = f"{target.shown(target.must)} | {target.shown(target.goal)}"
        lines.append(f"| {finding.key} {target.what} | {finding.value:.3f}{missed} | {bounds} | {rounds} |")
    if content["runs"]:
        lines += [
            "",
            "Medians over one engine of 64 slots and 50 ms. Rows/s and share: from the first row at the engine to the",
            "last line on disk; inside: to the last row at the engine. CPU is without the start; all: every process.",
            "",
            "| client | rows/s | share | inside | CPU a row, µs | all, µs | peak, MiB |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            "| {} | {rate:.0f} | {whole_share:.3f} | {share:.3f} | {cpu_us:.0f} | {all_us:.0f} | {peak:.0f} |".format(
                name, **m
            )
            for name, m in _medians(content["runs"]).items()
        ]
        lines += ["", "![Share of the engine's limit](figures/share.svg)", "", "![CPU a row](figures/cpu.svg)"]
    return "\n".join(lines)
