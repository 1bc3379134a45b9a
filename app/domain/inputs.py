"""A batch's whole input file: checked as one fold, and cut into shards (DESIGN 7, INPUTS 1 to 5)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Protocol

from app.domain.duplicates import IdTally, confirmed
from app.domain.input_errors import MAX_STORED_ERRORS, InputError, InputErrorCode, InputErrors
from app.domain.input_lines import BadLine, CheckedLine, check_line
from app.domain.lines import DEFAULT_MAX_LINE_BYTES, Line, foreign, read_lines
from app.domain.parameters import NONE, bounded, bounded_by_model
from app.domain.rows import RowErrorCode

HEAD_BYTES = 4
"""What shows that a file is no UTF-8 text."""


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
    input_sum: str | None = None
    """The checksum of its bytes, where one was asked for."""


class ShardSums(Protocol):
    """Sums the bytes of shards as a file is read (app.checksums.GrowingSums)."""

    def reading(self, chunks: Iterable[bytes], end: Callable[[], int | None]) -> Iterator[bytes]:
        """Pass the file's chunks on. `end` gives where the last row so far of an open shard ends."""

    def begin(self, start: int) -> None:
        """Begin a shard."""

    def end(self, end: int) -> str:
        """End the shard, and give its checksum."""


@dataclass(frozen=True, slots=True)
class InputReport:
    """What one pass over a file found: its shards, which hold the good lines, and what is wrong with the others."""

    endpoint: str
    rows: int
    found: InputErrors
    shards: tuple[Shard, ...]
    models: tuple[str, ...]

    @property
    def errors(self) -> list[InputError]:
        """Entries for a batch's `errors.data`."""
        return self.found.entries()

    @property
    def error_count(self) -> int:
        """The true number of errors."""
        return self.found.count

    @property
    def ok(self) -> bool:
        """Tell whether the batch may run."""
        return not self.found.count


def validate(
    open_chunks: Callable[[], Iterable[bytes]],
    *,
    endpoint: str,
    limits: InputLimits | None = None,
    sums: ShardSums | None = None,
) -> InputReport:
    """Check a whole file and plan its shards.

    `open_chunks` gives the file's bytes from the start each time it is called: once, and a second time only when ids
    seem to repeat. Memory stays flat: 8 bytes a row, one line, one plan entry a shard.
    """
    limits = limits or InputLimits()
    head, chunks = _peeked(open_chunks())
    if what := foreign(head):
        message = f"The file is {what}. A batch's input is JSON Lines in UTF-8: convert it and upload it again."
        found = InputErrors()
        found.add_of_file(InputError(InputErrorCode.INVALID_JSON_LINE, message, None, None))
        return InputReport(endpoint, 0, found, (), ())
    fold = _Fold(endpoint, limits, sums)
    if sums is not None:
        chunks = sums.reading(chunks, fold.end_of_shard)
    for line in read_lines(chunks, max_line_bytes=limits.max_line_bytes):
        fold.take(line)
    fold.close()
    _find_repeats(fold, open_chunks)
    models = sorted({model for shard in fold.shards for model in shard.models})
    return InputReport(endpoint, fold.rows, fold.errors, tuple(fold.shards), tuple(models))


def _peeked(chunks: Iterable[bytes]) -> tuple[bytes, Iterable[bytes]]:
    """Give the first bytes of a file, and all its chunks."""
    rest = iter(chunks)
    first: list[bytes] = []
    while sum(map(len, first)) < HEAD_BYTES and (chunk := next(rest, None)) is not None:
        first.append(chunk)
    return b"".join(chunk[:HEAD_BYTES] for chunk in first)[:HEAD_BYTES], chain(first, rest)


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

    def __init__(self, endpoint: str, limits: InputLimits, sums: ShardSums | None = None) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self._sums = sums
        self.rows = 0
        self.inputs = 0
        self.errors = InputErrors()
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
        if checked.custom_id is not None:
            self.ids.add(checked.custom_id)
        if isinstance(checked, BadLine):
            for error in checked.errors:
                self.errors.add(error)
            return
        self.inputs += checked.inputs
        if self.inputs > self.limits.max_rows and self._first_input_over is None:
            self._first_input_over = line.number
        self._plan(row, line, checked)

    def _plan(self, row: int, line: Line, checked: CheckedLine) -> None:
        cut = self._cut
        if cut and (cut.rows >= self.limits.shard_rows or line.end - cut.start > self.limits.shard_bytes):
            self._close_shard()
            cut = None
        if cut is None:
            cut = self._cut = _Cut(row, line.start, line.end)
            if self._sums is not None:
                self._sums.begin(line.start)
        cut.rows += 1
        cut.end = line.end
        if checked.rejected:
            cut.rejected.append(RejectedRow(row, checked.rejected.code, checked.rejected.message))
        else:
            cut.models.add(checked.model)
            if checked.parameters:
                asked = cut.parameters.get(checked.model, NONE) | checked.parameters
                cut.parameters[checked.model] = bounded(self.endpoint, asked)

    def _close_shard(self) -> None:
        cut, self._cut = self._cut, None
        if cut:
            models, rejected = tuple(sorted(cut.models)), tuple(cut.rejected)
            asked = bounded_by_model(self.endpoint, cut.parameters)
            total = self._sums.end(cut.end) if self._sums is not None else None
            number = len(self.shards)
            self.shards.append(
                Shard(number, cut.first_row, cut.rows, cut.start, cut.end, models, rejected, asked, total)
            )

    def end_of_shard(self) -> int | None:
        """Where the last row of the shard ends that is being filled."""
        return self._cut.end if self._cut is not None else None

    def close(self) -> None:
        """End the last shard, and find what is wrong with the file as a whole."""
        self._close_shard()
        if not self.rows:
            self._refuse(InputErrorCode.EMPTY_FILE, "The input file holds no requests.", None, None)
        if self._first_row_over is not None:
            message = f"The input file holds {self.rows} requests; the limit is {self.limits.max_rows}."
            self._refuse(InputErrorCode.TOO_MANY_TASKS, message, None, self._first_row_over)
        if self._first_input_over is not None:
            message = f"The input file holds {self.inputs} embedding inputs; the limit is {self.limits.max_rows}."
            self._refuse(InputErrorCode.TOO_MANY_TASKS, message, "body.input", self._first_input_over)

    def _refuse(self, code: InputErrorCode, message: str, param: str | None, line: int | None) -> None:
        self.errors.add_of_file(InputError(code, message, param, line))


def _find_repeats(fold: _Fold, open_chunks: Callable[[], Iterable[bytes]]) -> None:
    """Read the file again if ids seem to repeat: the first hundred rows whose id truly was used before are named."""
    count, suspects = fold.ids.repeats()
    if not suspects:
        return
    named = 0
    repeats = confirmed(_ids(open_chunks(), fold.endpoint, fold.limits), suspects)
    for line, custom_id, first in islice(repeats, MAX_STORED_ERRORS):
        named += 1
        message = f"'custom_id' {_ascii(custom_id)} of line {line} was already used in line {first}."
        fold.errors.add(InputError(InputErrorCode.DUPLICATE_CUSTOM_ID, message, "custom_id", line))
    # Below a hundred all suspects were looked at: two different ids of one hash are no error.
    if named == MAX_STORED_ERRORS and count > named:
        message = "'custom_id' was used in an earlier line."
        fold.errors.add(InputError(InputErrorCode.DUPLICATE_CUSTOM_ID, message, "custom_id", None), count - named)


def _ids(chunks: Iterable[bytes], endpoint: str, limits: InputLimits) -> Iterator[tuple[int, str]]:
    lines = read_lines(chunks, max_line_bytes=limits.max_line_bytes)
    for line in islice(lines, limits.max_rows):
        checked = check_line(line, endpoint=endpoint)
        if checked.custom_id is not None:
            yield line.number, checked.custom_id


def _ascii(text: str) -> str:
    return ascii(text[:100])
