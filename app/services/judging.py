"""May a batch's rows run in its pool at all? Decided once, for the whole batch (R-23, DESIGN 6).

Nobody in the pool ever served one of its models, or takes one of its parameters: the batch fails, with the lines that
ask for it. Somebody could: it waits for them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.db.tables import Batch
from app.domain.eligibility import Requirement, Serving, can_serve, missing_models, missing_parameters
from app.domain.input_errors import InputError, InputErrorCode, InputErrors
from app.domain.input_lines import CheckedLine, check_line
from app.domain.inputs import InputLimits, InputReport, Shard
from app.domain.lines import Line, read_lines
from app.domain.parameters import NONE, bounded, crossing, essential

SHOWN = 20
"""Names in one message."""
MAX_NAMES = 50_000
"""Models and parameters that the needs of a batch name together. Every shard of a shuffled file may name each model."""


@dataclass(frozen=True, slots=True)
class Question:
    """A batch that was read, and what each worker of its pool serves or served.

    `open_chunks` gives its input from the start. `forbidden` are parameters that this service refuses.
    `is_settled`: nobody of the pool is to be asked again for the models that it serves.
    """

    batch: Batch
    report: InputReport
    pool: Sequence[Collection[Serving]]
    limits: InputLimits
    open_chunks: Callable[[], Iterable[bytes]]
    forbidden: frozenset[str] = NONE
    is_settled: bool = True

    @property
    def found(self) -> InputErrors:
        """What is wrong with the input so far."""
        return self.report.found


def set_apart(report: InputReport) -> tuple[InputReport, frozenset[str]]:
    """Take what reaches across requests out of the needs of shards; gives its names, too."""
    asked = {name for shard in report.shards for _, names in shard.parameters for name in names}
    found = crossing(report.endpoint, asked)
    if not found:
        return report, found
    return replace(report, shards=tuple(_without(shard, found) for shard in report.shards)), found


def requirement(batch: Batch, shard: Shard) -> Requirement:
    """Say what a shard needs of its worker; parameters that may be dropped are no need."""
    named = ((model, _needed(batch, names)) for model, names in shard.parameters)
    return Requirement(batch.endpoint, shard.models, tuple((model, names) for model, names in named if names))


def judge(question: Question) -> Collection[str]:
    """Add to the errors of an input what nobody of the pool could ever run.

    Gives the models that nobody serves as far as is known, where that is not settled: nothing is added for them.
    With no worker registered yet, or one whose runtime never answered, nobody can say: the batch waits, and says so.
    """
    if many := _too_many(question):
        question.found.add_of_file(many)
        return ()
    missing: Collection[str] = ()
    lacking: Mapping[str, frozenset[str]] = {}
    if question.pool:
        need = _whole(question)
        missing, lacking = missing_models(question.pool, need), missing_parameters(question.pool, need)
    if missing and not question.is_settled:
        return missing
    if missing or lacking or question.forbidden:
        _name_lines(question, frozenset(missing), lacking)
    elif question.pool and question.report.ok:
        _name_shards_apart(question)
    return ()


def _too_many(question: Question) -> InputError | None:
    """Name the bound of what a batch may need, when it is exceeded."""
    models, limits = len(question.report.models), question.limits
    if models > limits.max_models:
        what = f"The file names {models} models, and a batch may name {limits.max_models} (the setting max_models)."
        return InputError(InputErrorCode.TOO_MANY_MODELS, f"{what} Send several batches.", "body.model", None)
    found = {requirement(question.batch, shard) for shard in question.report.shards}
    needs = max(len(found), len({ask for need in found for ask in need.asks}))
    if needs > limits.max_requirements:
        what = f"Its shards need {needs} different sets of models and parameters, and the limit is"
        do = "Sort the file by model, or send several batches."
        message = f"{what} {limits.max_requirements} (max_requirements). {do}"
        return InputError(InputErrorCode.TOO_MANY_REQUIREMENTS, message, "body.model", None)
    names = sum(len(need.models) + sum(len(asked) for _, asked in need.parameters) for need in found)
    if names > MAX_NAMES:
        what = f"The needs of its shards name {names} models and parameters, and those of a batch may name {MAX_NAMES}."
        do = "Sort the file by model, or send several batches."
        return InputError(InputErrorCode.TOO_MANY_REQUIREMENTS, f"{what} {do}", "body.model", None)
    return None


def _without(shard: Shard, found: frozenset[str]) -> Shard:
    kept = ((model, tuple(name for name in names if name not in found)) for model, names in shard.parameters)
    return replace(shard, parameters=tuple((model, names) for model, names in kept if names))


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


def _name_lines(question: Question, missing: frozenset[str], lacking: Mapping[str, frozenset[str]]) -> None:
    """Name each line whose model nobody serves, and each parameter of a line that no runtime of its model takes."""
    batch = question.batch
    known = sorted({model for runtimes in question.pool for serving in runtimes for model in serving.models})
    has = f"It has {', '.join(known[:SHOWN])}." if known else "Its workers have no model loaded."
    for line, checked in _lines(question):
        if checked.model in missing:
            message = f"No worker of pool '{batch.pool}' serves the model {checked.model!a} on {batch.endpoint}. {has}"
            error = InputError(InputErrorCode.MODEL_NOT_FOUND, message, "body.model", line.number)
            question.found.add(error)
        refused = lacking.get(checked.model, NONE) | question.forbidden
        for name in sorted(bounded(batch.endpoint, checked.parameters) & refused) if refused else ():
            whole, _, form = name.partition(".")
            if form and whole in refused:
                continue  # the parameter itself is named
            message = _forbidden(name) if name in question.forbidden else _lacking(batch, checked.model, name)
            question.found.add(InputError(InputErrorCode.UNSUPPORTED_PARAMETER, message, name, line.number))


def _forbidden(name: str) -> str:
    return (
        f"'{name}' reaches across requests, which this server refuses (cross_request_parameters = fail). Leave it out."
    )


def _lacking(batch: Batch, model: str, name: str) -> str:
    what = f"'{name}'" if name != "*" else "parameters that it does not know"
    way_out = "" if essential(batch.endpoint, [name]) else " Leave it out, or send unsupported_parameters: 'drop'."
    where = f"No runtime of pool '{batch.pool}' that serves {model!a}"
    return f"{where} takes {what} on {batch.endpoint}.{way_out}"


def _name_shards_apart(question: Question) -> None:
    """Refuse shards that no single worker could run whole."""
    for shard in question.report.shards:
        need = requirement(question.batch, shard)
        if not any(can_serve(runtimes, need, live_only=False) for runtimes in question.pool):
            question.found.add(_apart(question, shard, need))


def _apart(question: Question, shard: Shard, need: Requirement) -> InputError:
    bare = Requirement(need.endpoint, need.models)
    where = f"which stand among rows {shard.first_row + 1} to {shard.first_row + shard.rows}"
    worker = f"No single worker of pool '{question.batch.pool}'"
    if not any(can_serve(runtimes, bare, live_only=False) for runtimes in question.pool):
        models = ", ".join(ascii(model) for model in shard.models[:SHOWN])
        message = f"{worker} serves all of {models}, {where}. Sort the file by model, or send one batch a model."
        return InputError(InputErrorCode.MODEL_NOT_FOUND, message, "body.model", None)
    names = sorted({name for _, names in need.parameters for name in names})
    message = f"{worker} takes all of {', '.join(names[:SHOWN])}, {where}. Send one batch for each set of parameters."
    return InputError(InputErrorCode.UNSUPPORTED_PARAMETER, message, names[0], None)
