"""What must be true at the end of a run: each check has what was found and what is allowed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.fleet import Fleet
from tests.chaos.forms import LOSSES, SILENT, Form, Kind
from tests.chaos.happening import Happened, Run
from tests.chaos.resources import Resources
from tests.chaos.stalls import Stalls
from tests.chaos.takeovers import Takeover
from tests.e2e.rows import carries_its_own_mark, counts
from tests.e2e.submitted import Submitted

PREFIX = "row"
WORK_SECONDS = 5.0
"""Of a lost worker's work so much may have to run again."""
SLACK_SECONDS = 10.0
THAWED_SECONDS = 1.0
"""A thawed worker notices within this time that its leases are no longer its own."""
FILES, MIB = 40, 100


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    what: str
    found: str
    allowed: str
    holds: bool


def of_rows(batch: Submitted, fleet: Fleet, form: Form, run: Run) -> list[Check]:
    """Every row once, with its own answer, counted as often as it stands in the files."""
    ended = batch.now()
    output, errors = batch.output(), batch.errors()
    ids = Counter(line["custom_id"] for line in output + errors)
    wanted = [f"{PREFIX}-{number}" for number in range(form.rows)]
    strangers = sum(not carries_its_own_mark(line) for line in output)
    in_order = [line["custom_id"] for line in output] == wanted
    one_file = [line["custom_id"] for line in batch.results()] == wanted
    marks = fleet.marks()
    again = sum(marks.values()) - len(marks)
    self_stops = fleet.self_stops()
    return [
        _equal("status", ended.status, "completed"),
        _equal("distinct ids", len(ids), form.rows),
        _equal("rows missing", len(set(wanted) - set(ids)), 0),
        _equal("rows doubled", sum(times > 1 for times in ids.values()), 0),
        _equal("rows with another row's answer", strangers, 0),
        _equal("rows failed", len(errors), 0),
        _equal("counts: total, completed, failed", counts(batch), (form.rows, len(output), len(errors))),
        _equal("output file and results in input order", (in_order, one_file), (True, True)),
        _at_most("rows that ran more than once", again, _rows_that_may_run_again(run.happened, self_stops, form)),
        Check("times a worker gave its leases up, the API being away", str(self_stops), "any", holds=True),
    ]


def _rows_that_may_run_again(happened: Iterable[Happened], self_stops: int, form: Form) -> int:
    """What lost workers had not handed in, what one that gave up by itself had not spooled, and a thaw's last rows."""
    thaws = sum(met.fault.kind is Kind.FREEZE for met in happened)
    not_handed_in = sum(met.not_handed_in for met in happened if met.fault.kind in LOSSES)
    of_a_self_stop = int(WORK_SECONDS * form.rows_a_second + form.prompts)
    of_a_thaw = int(THAWED_SECONDS * form.rows_a_second + form.prompts)
    return not_handed_in + self_stops * of_a_self_stop + thaws * of_a_thaw


def of_schedule(run: Run) -> Check:
    """Every fault that was drawn has happened: a run that was too short for them shows nothing."""
    return _equal("faults that found no moment", len(run.not_met), 0)


def of_losses(run: Run, form: Form) -> list[Check]:
    """What a lost worker had not handed in: five seconds of work, and what was in flight; more while nobody took it."""
    checks = []
    for met in run.happened:
        if met.fault.kind not in LOSSES:
            continue
        allowed = (WORK_SECONDS + _deaf_seconds(run.happened, met.at)) * form.rows_a_second + form.prompts
        what = f"rows not handed in when {met.target} was lost at {met.stored} rows"
        checks.append(_at_most(what, met.not_handed_in, int(allowed)))
    return checks


def _deaf_seconds(happened: Sequence[Happened], at: float) -> float:
    """How long the API was away in the last moments before, or still is: a hand-in had nobody to go to."""
    spans = [(met.at, met.over_at or at) for met in happened if met.target == "api"]
    return sum(min(over, at) - began for began, over in spans if began <= at <= over + WORK_SECONDS)


def of_takeovers(found: Sequence[Takeover], form: Form, stalls: Stalls) -> list[Check]:
    """How long shards lay idle. While the machine itself stood still nobody could have taken them."""
    since = {Kind.RESTART: "its hello", Kind.DEATH: "the kill", Kind.FREEZE: "the stop", Kind.DRAIN: "its release"}
    checks = []
    for kind, moment in since.items():
        waits = [_wait(takeover, form, stalls) for takeover in found if takeover.met.fault.kind is kind]
        if waits:
            what = f"{len(waits)} shards after `{kind}`: seconds from {moment} to the next worker, at most"
            what += "" if kind in SILENT else ", being next in line"
            worst = max(waits, key=lambda wait: wait.waited - wait.allowed)
            checks.append(Check(what, f"{worst.waited:.1f}", worst.words, worst.waited <= worst.allowed))
    return checks


@dataclass(frozen=True)
class Wait:
    """How long one shard lay idle and might, in seconds, and what makes that up."""

    waited: float
    allowed: float
    words: str


def _wait(takeover: Takeover, form: Form, stalls: Stalls) -> Wait:
    """A silence is waited out on any machine; what is to be done then is a matter of speed."""
    silence = form.toleration_seconds if takeover.met.fault.kind in SILENT else 0.0
    bound = SLACK_SECONDS if silence else form.prompt_seconds
    began, ended = takeover.span
    stretch, stalled = stalls.stretch(ended), stalls.between(began, ended)
    words = f"≤ {silence:g} + {bound:g}" if silence else f"≤ {bound:g}"
    words += f" · {stretch:.1f} for the load" if stretch > 1 else ""
    words += f", and {stalled:.1f} that the machine stood still" if stalled else ""
    return Wait(takeover.waited, silence + bound * stretch + stalled, words)


def of_machine(stalls: Stalls) -> list[Check]:
    """How busy the machine was: no bound, but what the bounds of time are to be read by."""
    found = f"{len(stalls.found)}, the longest {stalls.longest:.1f} s, {stalls.seconds:.1f} s in all"
    return [
        Check("times the machine stood still for 0.1 s or more", found, "any", holds=True),
        Check("processes a core that wanted to run, at most (over a minute)", f"{stalls.load:.1f}", "any", holds=True),
        Check("share of the time in which something waited for a core", f"{stalls.pressure:.0%}", "any", holds=True),
    ]


def of_processes(resources: Resources, left: Sequence[str], exits: Mapping[str, Sequence[int]]) -> list[Check]:
    """What the run cost its machine, and that nothing of it stays."""
    codes = sorted({code for found in exits.values() for code in found})
    files, opener = resources.most_files()
    mib, grower = resources.most_mib()
    return [
        _at_most(f"open files gained by any process (by {opener})", files, FILES),
        Check(f"MiB gained by any process (by {grower})", f"{mib:.0f}", f"≤ {MIB}", mib <= MIB),
        _equal("exit codes of drained workers", codes, [0] if codes else []),
        _equal("processes left over", len(left), 0),
    ]


def _equal(what: str, found: object, wanted: object) -> Check:
    return Check(what, str(found), str(wanted), found == wanted)


def _at_most(what: str, found: int, bound: int) -> Check:
    return Check(what, str(found), f"≤ {bound}", found <= bound)
