"""A run as a file, and as a section with a plot in docs/operate/faults.md."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import commit, machine
from tests.chaos.checks import Check
from tests.chaos.forms import Form
from tests.chaos.happening import Run
from tests.chaos.plot import plot
from tests.chaos.takeovers import Takeover

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".chaos"
PAGE = ROOT / "docs" / "operate" / "faults.md"
PLOT = ROOT / "docs" / "operate" / "figures" / "chaos.svg"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"


@dataclass(frozen=True)
class Report:
    """A run that has ended, whatever came of it."""

    form: Form
    seed: int
    database: str
    run: Run
    checks: Sequence[Check]
    takeovers: Sequence[Takeover]

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if not check.holds]

    @property
    def seconds(self) -> float:
        return self.run.ended_at - self.run.began_at

    def text(self) -> str:
        """All checks, one a line."""
        lines = [f"chaos {self.form.name}, seed {self.seed}, {self.database}: {self.seconds:.1f} s"]
        lines += [self._fault(number) for number in range(len(self.run.happened))]
        lines += [
            f"{'ok ' if check.holds else 'NOT'} {check.what}: {check.found} ({check.allowed})" for check in self.checks
        ]
        return "\n".join(lines)

    def line(self) -> str:
        """A run that passed, in one line."""
        waits = " · ".join(check.found for check in self.checks if "to the next worker" in check.what)
        found = {check.what: check.found for check in self.checks}
        again, stalls = found["rows that ran more than once"], found["times the machine stood still for 0.1 s or more"]
        return (
            f"ok: seed {self.seed}, {self.database}, {self.seconds:.0f} s, {len(self.run.happened)} faults, "
            f"{found['distinct ids']} of {self.form.rows} rows, none missing, none doubled, {again} ran again; "
            f"taken over after at most {waits} s; stalls: {stalls}"
        )

    def _fault(self, number: int) -> str:
        met = self.run.happened[number]
        over = f", over after {met.over_at - met.at:.1f} s" if met.over_at and met.over_at > met.at else ""
        lost = f", {met.not_handed_in} rows not handed in" if met.not_handed_in else ""
        return f"{met.at - self.run.began_at:6.1f} s  {met.stored:6d} rows  {met.target}: {met.fault.kind}{over}{lost}"

    def save(self) -> Path:
        """Write everything to a file below `.chaos/`."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.form.name}-{self.database}-{self.seed}.json"
        content = {
            "commit": commit(),
            "machine": machine(),
            "form": self.form.name,
            "rows": self.form.rows,
            "timing": dict(self.form.timing),
            "seed": self.seed,
            "database": self.database,
            "seconds": round(self.seconds, 1),
            "faults": [asdict(met) for met in self.run.happened],
            "takeovers": [asdict(takeover) | {"waited": takeover.waited} for takeover in self.takeovers],
            "checks": [asdict(check) for check in self.checks],
            "samples": [(round(s.at - self.run.began_at, 2), s.answered, s.stored) for s in self.run.samples],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        path.with_suffix(".svg").write_text(plot(self.run, self.form))
        return path

    def write_page(self) -> None:
        """Put the section between its two marks, and the plot beside the page."""
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{self._section()}\n{END}{after}")
        PLOT.parent.mkdir(exist_ok=True)
        PLOT.write_text(plot(self.run, self.form))

    def _section(self) -> str:
        form = self.form
        timing = ", ".join(f"`{name}` {value:g}" for name, value in form.timing.items())
        lines = [
            f"`python -m tests.chaos {form.name} --seed {self.seed} --database {self.database}`, commit `{commit()}`,",
            f"{machine()}: {form.rows:,} rows on 4 workers, each with {form.prompts} rows of {form.latency_ms} ms in",
            f"flight, shards of {form.shard_rows} rows, {len(self.run.happened)} faults, {self.seconds:.0f} s from the",
            "create to the files.",
            f"Shortened settings: {timing}.",
            "",
            "![Rows over time, with the faults](figures/chaos.svg)",
            "",
            "| after | stored | whom | what | over after | not handed in |",
            "|---|---|---|---|---|---|",
        ]
        for met in self.run.happened:
            over = f"{met.over_at - met.at:.1f} s" if met.over_at and met.over_at > met.at else ""
            at = f"{met.at - self.run.began_at:.1f} s"
            lines.append(
                f"| {at} | {met.stored:,} | {met.target} | {met.fault.kind} | {over} | {met.not_handed_in or ''} |"
            )
        lines += ["", "| at the end | found | allowed |", "|---|---|---|"]
        for check in self.checks:
            lines.append(f"| {check.what} | {check.found}{'' if check.holds else ' **no**'} | {check.allowed} |")
        return "\n".join(lines)
