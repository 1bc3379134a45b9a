"""A batch's whole input file: checked as one fold, and cut into shards (DESIGN 7, INPUTS 1 to 5)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from app.domain.duplicates import IdTally, confirmed
from app.domain.input_lines import CheckedLine, InputError, InputErrorCode, check_line
from app.domain.lines import DEFAULT_MAX_LINE_BYTES, Line, read_lines
from app.domain.parameters import NONE, bounded, bounded_by_model
from app.domain.rows import RowErrorCode

MAX_STORED_ERRORS = 100


@dataclass(frozen=True, slots=True)
class InputLimits:
    """What one input file may hold, and how it is cut. Defaults are the contract's; an operator may raise them.

    `max_rows` bounds the rows, and the embedding inputs over all rows as well. `max_requirements` bounds the different
    needs of shards: each claim judges all of a batch's.
    """

    max_rows: int = 50_000
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES
    shard_rows: int = 256
    shard_bytes: int = 16 * 1024 * 1024
    max_models: int = 100
    max_requirements: int = 250


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that no worker runs: it fails with `code`, decided once for the batch (R-23)."""

    row: int
    code: RowErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows `first_row` to `first_row + rows - 1` (rows count from 0), which lie in bytes `start` to `end` exclusive.

    The range begins at its first row's first byte and ends after its last row's newline; blank lines in it are no rows.
    `parameters` are, for each model whose rows ask for any, what not every runtime takes.
    """

    number: int
    first_row: int
    rows: int
    start: int
    end: int
    models: tuple[str, ...]
    rejected: tuple[RejectedRow, ...]
    parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class InputReport:
    """What validation found: either `errors` (and no shards), or the shards of all `rows` rows.

    `errors` holds the first hundred, in order of lines; `error_count` counts all.
    """

    endpoint: str
    rows: int
    errors: tuple[InputError, ...]
    error_count: int
    shards: tuple[Shard, ...]
    models: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Tell whether the batch may run."""
        return not self.error_count


def validate(
    open_chunks: Callable[[], Iterable[bytes]], *, endpoint: str, limits: InputLimits | None = None
) -> InputReport:
    """Check a whole file and plan its shards.

    `open_chunks` gives the file's bytes from the start each time it is called: once, and a second time only when ids
    seem to repeat. Memory stays flat: 8 bytes a row, one line, one plan entry a shard.
    """
    limits = limits or InputLimits()
    fold = _Fold(endpoint, limits)
    for line in read_lines(open_chunks(), max_line_bytes=limits.max_line_bytes):
        fold.take(line)
    file_errors = fold.file_errors()
    repeats, suspects = fold.ids.repeats()
    repeated = list(_repeated(open_chunks, suspects, endpoint, limits)) if suspects else []
    if len(repeated) < MAX_STORED_ERRORS:
        repeats = len(repeated)  # all suspects were looked at: two different ids of one hash are no error
    error_count = len(file_errors) + fold.error_count + repeats
    if error_count:
        line_errors = sorted(fold.errors + repeated, key=lambda error: error.line or 0)
        errors = (*file_errors, *line_errors)[:MAX_STORED_ERRORS]
        return InputReport(endpoint, fold.rows, errors, error_count, (), ())
    fold.close_shard()
    models = sorted({model for shard in fold.shards for model in shard.models})
    return InputReport(endpoint, fold.rows, (), 0, tuple(fold.shards), tuple(models))


@dataclass(slots=True)
class _Cut:
    """The shard that is being filled."""

    first_row: int
    start: int
    end: int
    rows: int = 0
    models: set[str] = field(default_factory=set)
    parameters: dict[str, frozenset[str]] = field(default_factory=dict)
    rejected: list[RejectedRow] = field(default_factory=list)


class _Fold:
    """What one pass over the lines has gathered so far."""

    def __init__(self, endpoint: str, limits: InputLimits) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self.rows = 0
        self.inputs = 0
        self.errors: list[InputError] = []
        self.error_count = 0
        self.ids = IdTally()
        self.shards: list[Shard] = []
        self._cut: _Cut | None = None
        self._first_row_over: int | None = None
        self._first_input_over: int | None = None

    def take(self, line: Line) -> None:
        row, self.rows = self.rows, self.rows + 1
        if row >= self.limits.max_rows:
            # From here on rows are counted for the message, and not looked at.
            self._first_row_over = self._first_row_over or line.number
            return
        checked = check_line(line, endpoint=self.endpoint)
        if isinstance(checked, InputError):
            self.error_count += 1
            if len(self.errors) < MAX_STORED_ERRORS:
                self.errors.append(checked)
            return
        self.ids.add(checked.custom_id)
        self.inputs += checked.inputs
        if self.inputs > self.limits.max_rows and self._first_input_over is None:
            self._first_input_over = line.number
        if not self.error_count:
            self._plan(row, line, checked)

    def _plan(self, row: int, line: Line, checked: CheckedLine) -> None:
        cut = self._cut
        if cut and (cut.rows >= self.limits.shard_rows or line.end - cut.start > self.limits.shard_bytes):
            self.close_shard()
            cut = None
        if cut is None:
            cut = self._cut = _Cut(row, line.start, line.end)
        cut.rows += 1
        cut.end = line.end
        if checked.rejected:
            cut.rejected.append(RejectedRow(row, checked.rejected.code, checked.rejected.message))
        else:
            cut.models.add(checked.model)
            if checked.parameters:
                asked = cut.parameters.get(checked.model, NONE) | checked.parameters
                cut.parameters[checked.model] = bounded(self.endpoint, asked)

    def close_shard(self) -> None:
        cut, self._cut = self._cut, None
        if cut:
            models, rejected = tuple(sorted(cut.models)), tuple(cut.rejected)
            asked = bounded_by_model(self.endpoint, cut.parameters)
            number = len(self.shards)
            self.shards.append(Shard(number, cut.first_row, cut.rows, cut.start, cut.end, models, rejected, asked))

    def file_errors(self) -> list[InputError]:
        """Give the errors that are about the file as a whole. They come first, so that no cap hides them."""
        if not self.rows:
            return [InputError(InputErrorCode.EMPTY_FILE, "The input file holds no requests.", None, None)]
        errors = []
        if self._first_row_over is not None:
            message = f"The input file holds {self.rows} requests; the limit is {self.limits.max_rows}."
            errors.append(InputError(InputErrorCode.TOO_MANY_TASKS, message, None, self._first_row_over))
        if self._first_input_over is not None:
            message = f"The input file holds {self.inputs} embedding inputs; the limit is {self.limits.max_rows}."
            errors.append(InputError(InputErrorCode.TOO_MANY_TASKS, message, "body.input", self._first_input_over))
        return errors


def _repeated(
    open_chunks: Callable[[], Iterable[bytes]], suspects: frozenset[int], endpoint: str, limits: InputLimits
) -> Iterator[InputError]:
    """Read the file again and give the first hundred rows whose id truly was used before."""
    repeats = confirmed(_ids(open_chunks(), endpoint, limits), suspects)
    for line, custom_id, first in islice(repeats, MAX_STORED_ERRORS):
        message = f"'custom_id' {_ascii(custom_id)} of line {line} was already used in line {first}."
        yield InputError(InputErrorCode.DUPLICATE_CUSTOM_ID, message, "custom_id", line)


def _ids(chunks: Iterable[bytes], endpoint: str, limits: InputLimits) -> Iterator[tuple[int, str]]:
    lines = read_lines(chunks, max_line_bytes=limits.max_line_bytes)
    for line in islice(lines, limits.max_rows):
        checked = check_line(line, endpoint=endpoint)
        if isinstance(checked, CheckedLine):
            yield line.number, checked.custom_id


def _ascii(text: str) -> str:
    return ascii(text[:100])
