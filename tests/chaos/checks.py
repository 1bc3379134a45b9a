"""What must be true at the end of a run: each check has what was found and what is allowed."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from app.domain.rows import RowErrorCode
from tests.chaos.damage import Damage, Damaged, served
from tests.chaos.fleet import Fleet
from tests.chaos.forms import CONTENT, LOSSES, PREFIX, SILENT, Form, Kind
from tests.chaos.happening import Happened, Run
from tests.chaos.resources import Resources
from tests.chaos.stalls import Stalls
from tests.chaos.takeovers import Takeover
from tests.e2e.rows import counts, right_lines
from tests.e2e.submitted import Submitted
from tests.e2e.yard import Yard

WORK_SECONDS = 5.0
"""Of a lost worker's work so much may have to run again."""
SLACK_SECONDS = 10.0
THAWED_SECONDS = 1.0
"""A thawed worker notices within this time that its leases are no longer its own."""
FILES, MIB = 40, 100
END_SECONDS = 120.0
"""So long a batch may look for a content that is gone before it ends without it."""


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
    lines = batch.raw_output()
    output, errors = readable(lines), readable(batch.raw_errors())
    ids = Counter(line["custom_id"] for line in output + errors)
    wanted = [f"{PREFIX}-{number}" for number in range(form.rows)]
    failed = {line["custom_id"] for line in errors}
    by_damage = sum(code_of(line) == RowErrorCode.RESULT_DAMAGED for line in errors)
    hit = any(met.fault.target == "segment" for met in run.happened)
    in_order = [line["custom_id"] for line in output] == [row for row in wanted if row not in failed]
    one_file = [line["custom_id"] for line in readable(batch.raw_results())] == wanted
    marks = fleet.marks()
    again = sum(marks.values()) - len(marks)
    self_stops = fleet.self_stops()
    return [
        _equal("status", ended.status, "completed"),
        _equal("distinct ids", len(ids), form.rows),
        _equal("rows missing", len(set(wanted) - set(ids)), 0),
        _equal("rows doubled", sum(times > 1 for times in ids.values()), 0),
        _no_lines("rows with another answer than their own", wrong_lines(lines, batch.id, PREFIX, form.rows)),
        _equal("rows failed but for damaged hand-ins", len(errors) - by_damage, 0),
        Check("rows failed for damaged hand-ins", str(by_damage), "> 0" if hit else "0", bool(by_damage) == hit),
        _equal("counts: total, completed, failed", counts(batch), (form.rows, len(lines), len(errors))),
        _equal("output file and results in input order", (in_order, one_file), (True, True)),
        _at_most("rows that ran more than once", again, _rows_that_may_run_again(run.happened, self_stops, form)),
        Check("times a worker gave its leases up, the API being away", str(self_stops), "any", holds=True),
    ]


def readable(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The lines that are JSON with an id; the others are wrong lines, and their rows are missing."""
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict) and "custom_id" in line]


def code_of(line: dict[str, Any]) -> str:
    """Why a row of an error file failed; the empty string for an answer of the runtime."""
    return line["error"]["code"] if line.get("error") else ""


def wrong_lines(found: Iterable[bytes], batch_id: str, prefix: str, rows: int) -> list[bytes]:
    """Find the lines of an output file that are not, byte for byte, the answer to the row whose id they carry."""
    right = set(right_lines(batch_id, prefix, rows))
    return [line for line in found if line not in right]


def _no_lines(what: str, found: Sequence[bytes]) -> Check:
    words = f"{len(found)}, such as {found[0].decode(errors='replace')}" if found else "0"
    return Check(what, words, "0", not found)


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


def of_damage(damage: Damage, yard: Yard) -> list[Check]:
    """What became of the batches beside the whole one, and of damaged output files, the whole one's among them."""
    unended = damage.unended(seconds=END_SECONDS)
    ended = [one for one in damage.done if one not in unended]
    inputs, uploads, results = ([one for one in ended if one.fault.target == what] for what in CONTENT[1:])
    codes = Counter(code_of(line) for one in inputs for line in readable(one.batch.raw_errors()))
    wrong = [wrong_lines(one.batch.raw_output(), one.batch.id, one.prefix, one.rows) for one in inputs]
    wrong += [
        wrong_lines(one.right.splitlines(), one.batch.id, one.prefix, one.rows)
        for one in results
        if one.prefix != PREFIX
    ]
    downloads = [(one, served(yard, one), served(yard, one)) for one in results]
    silent = [one for one in inputs + results if (one.right or one.batch.raw_errors()) and not _is_told(yard, one)]
    return [
        _none("batches beside it that have not ended", unended),
        _none("damaged before validation, not failed as input_damaged", [x for x in uploads if not _is_refused(x)]),
        _no_lines("beside it: lines with another answer than their own", list(chain.from_iterable(wrong))),
        _none("beside it: batches whose lines and counts differ", [x for x in inputs if not _fits(x)]),
        _equal("beside it: rows failed by another name", codes.total() - codes[RowErrorCode.INPUT_DAMAGED], 0),
        Check("beside it: rows failed for damaged inputs", str(codes[RowErrorCode.INPUT_DAMAGED]), "any", holds=True),
        _none("damaged results that were served", [x for x, first, _ in downloads if not first.is_cut(x)]),
        _none("damaged results that are not refused then", [x for x, _, then in downloads if not then.is_refused]),
        _none("damaged batches without the event batch.damaged", silent),
    ]


def _none(what: str, found: Iterable[Damaged]) -> Check:
    """Name the faults of what should not be there."""
    names = ", ".join(f"{one.fault.target} {one.fault.kind}" for one in found)
    return Check(what, names or "none", "none", not names)


def _is_refused(one: Damaged) -> bool:
    batch = one.batch.now()
    errors = batch.errors.data if batch.errors and batch.errors.data else []
    return batch.status == "failed" and [error.code for error in errors] == [RowErrorCode.INPUT_DAMAGED]


def _fits(one: Damaged) -> bool:
    """A line per row, as many as are counted, and each id once; a row whose input is damaged has none."""
    output, errors = one.batch.raw_output(), one.batch.raw_errors()
    found = readable(output + errors)
    ids = [line["custom_id"] for line in found if code_of(line) != RowErrorCode.INPUT_DAMAGED or line["custom_id"]]
    own = {f"{one.prefix}-{number}" for number in range(one.rows)}
    fits = len(found) == one.rows and len(set(ids)) == len(ids) and own.issuperset(ids)
    return fits and counts(one.batch) == (one.rows, len(output), len(errors))


def _is_told(yard: Yard, one: Damaged) -> bool:
    return any(event["type"] == "batch.damaged" for event in yard.events(one.batch.id))


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
