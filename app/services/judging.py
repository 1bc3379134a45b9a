"""May a batch's rows run in its pool at all? Decided once, for the whole batch (R-23, DESIGN 6).

Nobody in the pool ever served one of its models, or takes one of its parameters: the batch fails, with the lines that
ask for it. Somebody could: it waits for them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.db.tables import Batch
from app.domain.eligibility import Requirement, Serving, can_serve, missing_models, missing_parameters
from app.domain.input_lines import CheckedLine, check_line
from app.domain.inputs import MAX_STORED_ERRORS, InputLimits, InputReport, Shard
from app.domain.lines import Line, read_lines
from app.domain.parameters import bounded, essential

SHOWN = 20
"""Names in one message."""
MAX_NAMES = 50_000
"""Models and parameters that the needs of a batch name together. Every shard of a shuffled file may name each model."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Entries of `errors.data[]`, the first hundred, and their true number. None: the batch may run."""

    entries: Sequence[dict[str, object]] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """A batch whose lines are good, and what each worker of its pool serves or served.

    `open_chunks` gives its input from the start.
    """

    batch: Batch
    report: InputReport
    pool: Sequence[Collection[Serving]]
    limits: InputLimits
    open_chunks: Callable[[], Iterable[bytes]]


def requirement(batch: Batch, shard: Shard) -> Requirement:
    """Say what a shard needs of its worker; parameters that may be dropped are no need."""
    named = ((model, _needed(batch, names)) for model, names in shard.parameters)
    return Requirement(batch.endpoint, shard.models, tuple((model, names) for model, names in named if names))


def judge(question: Question) -> Refusals:
    """Find what nobody of the pool could ever run.

    With no worker registered yet, or one whose runtime never answered, nobody can say: the batch waits, and says so.
    """
    if many := _too_many(question):
        return Refusals([many], 1)
    if not question.pool:
        return Refusals()
    need = _whole(question)
    if missing := missing_models(question.pool, need):
        return _without_model(question, missing)
    if lacking := missing_parameters(question.pool, need):
        return _without_parameters(question, lacking)
    return _apart(question)


def entry(code: str, message: str, param: str | None, line: int | None) -> dict[str, object]:
    """Make one entry of `errors.data[]`."""
    return {"code": code, "message": message, "param": param, "line": line}


def capped(entries: Sequence[dict[str, object]], count: int) -> Refusals:
    """Close a list that is shorter than `count` with one entry that says so."""
    left_out = count - len(entries)
    more = [entry("too_many_errors", f"And {left_out} more errors.", None, None)] if left_out > 0 else []
    return Refusals([*entries, *more], count)


def _too_many(question: Question) -> dict[str, object] | None:
    """Name the bound of what a batch may need, when it is exceeded."""
    models, limits = len(question.report.models), question.limits
    if models > limits.max_models:
        what = f"The file names {models} models, and a batch may name {limits.max_models} (the setting max_models)."
        return entry("too_many_models", f"{what} Send several batches.", "body.model", None)
    found = {requirement(question.batch, shard) for shard in question.report.shards}
    needs = max(len(found), len({ask for need in found for ask in need.asks}))
    if needs > limits.max_requirements:
        what = f"Its shards need {needs} different sets of models and parameters, and the limit is"
        do = "Sort the file by model, or send several batches."
        message = f"{what} {limits.max_requirements} (max_requirements). {do}"
        return entry("too_many_requirements", message, "body.model", None)
    names = sum(len(need.models) + sum(len(asked) for _, asked in need.parameters) for need in found)
    if names > MAX_NAMES:
        what = f"The needs of its shards name {names} models and parameters, and those of a batch may name {MAX_NAMES}."
        do = "Sort the file by model, or send several batches."
        return entry("too_many_requirements", f"{what} {do}", "body.model", None)
    return None


def _needed(batch: Batch, names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(essential(batch.endpoint, names) if batch.drop_parameters else names))


def _whole(question: Question) -> Requirement:
    """Say what all shards need together."""
    found: dict[str, frozenset[str]] = {}
    for shard in question.report.shards:
        for model, names in requirement(question.batch, shard).parameters:
            found[model] = found.get(model, frozenset()) | frozenset(names)
    endpoint = question.batch.endpoint
    parameters = tuple((model, tuple(sorted(bounded(endpoint, names)))) for model, names in sorted(found.items()))
    return Requirement(endpoint, question.report.models, parameters)


def _lines(question: Question) -> Iterator[tuple[Line, CheckedLine]]:
    """Read the input again, for the rows that would run."""
    for line in read_lines(question.open_chunks(), max_line_bytes=question.limits.max_line_bytes):
        checked = check_line(line, endpoint=question.batch.endpoint)
        if isinstance(checked, CheckedLine) and not checked.rejected:
            yield line, checked


def _without_model(question: Question, missing: Collection[str]) -> Refusals:
    batch = question.batch
    known = sorted({model for runtimes in question.pool for serving in runtimes for model in serving.models})
    has = f"It has {', '.join(known[:SHOWN])}." if known else "Its workers have no model loaded."
    entries: list[dict[str, object]] = []
    count = 0
    for line, checked in _lines(question):
        if checked.model not in missing:
            continue
        count += 1
        if len(entries) < MAX_STORED_ERRORS:
            message = f"No worker of pool '{batch.pool}' serves the model {checked.model!a} on {batch.endpoint}. {has}"
            entries.append(entry("model_not_found", message, "body.model", line.number))
    return capped(entries, count)


def _without_parameters(question: Question, lacking: Mapping[str, frozenset[str]]) -> Refusals:
    """Name each line with a parameter that no runtime of its model takes; a line with two of them has two entries."""
    batch = question.batch
    entries: list[dict[str, object]] = []
    count = 0
    for line, checked in _lines(question):
        refused = lacking.get(checked.model, frozenset())
        for name in sorted(bounded(batch.endpoint, checked.parameters) & refused) if refused else ():
            count += 1
            if len(entries) < MAX_STORED_ERRORS:
                entries.append(entry("unsupported_parameter", _lacking(batch, checked.model, name), name, line.number))
    return capped(entries, count)


def _lacking(batch: Batch, model: str, name: str) -> str:
    what = f"'{name}'" if name != "*" else "parameters that it does not know"
    way_out = "" if essential(batch.endpoint, [name]) else " Leave it out, or send unsupported_parameters: 'drop'."
    where = f"No runtime of pool '{batch.pool}' that serves {model!a}"
    return f"{where} takes {what} on {batch.endpoint}.{way_out}"


def _apart(question: Question) -> Refusals:
    """Refuse shards that no single worker could run whole."""
    batch = question.batch
    apart: list[dict[str, object]] = []
    count = 0
    for shard in question.report.shards:
        need = requirement(batch, shard)
        if any(can_serve(runtimes, need, live_only=False) for runtimes in question.pool):
            continue
        count += 1
        if len(apart) < MAX_STORED_ERRORS:
            apart.append(_apart_entry(question, shard, need))
    return capped(apart, count)


def _apart_entry(question: Question, shard: Shard, need: Requirement) -> dict[str, object]:
    bare = Requirement(need.endpoint, need.models)
    where = f"which stand among rows {shard.first_row + 1} to {shard.first_row + shard.rows}"
    worker = f"No single worker of pool '{question.batch.pool}'"
    if not any(can_serve(runtimes, bare, live_only=False) for runtimes in question.pool):
        models = ", ".join(ascii(model) for model in shard.models[:SHOWN])
        message = f"{worker} serves all of {models}, {where}. Sort the file by model, or send one batch a model."
        return entry("model_not_found", message, "body.model", None)
    names = sorted({name for _, names in need.parameters for name in names})
    message = f"{worker} takes all of {', '.join(names[:SHOWN])}, {where}. Send one batch for each set of parameters."
    return entry("unsupported_parameter", message, names[0], None)
