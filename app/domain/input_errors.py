"""What is wrong with a batch's input: one entry each while these are few, else equal ones share an entry (B-17).

A file may have a million bad lines. What is kept of them is bounded, and each kind of mistake is named whatever else is
wrong, so that nobody finds the next mistake only after the last one is mended.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

MAX_STORED_ERRORS = 100
MAX_SHOWN_LINES = 10
"""Lines that one entry names."""


class InputErrorCode(StrEnum):
    """Codes of a batch's `errors.data[]`: Azure's names, and OpenAI's for what is absent."""

    INVALID_JSON_LINE = "invalid_json_line"
    INVALID_REQUEST = "invalid_request"
    MISSING_REQUIRED_PARAMETER = "missing_required_parameter"
    URL_MISMATCH = "url_mismatch"
    DUPLICATE_CUSTOM_ID = "duplicate_custom_id"
    EMPTY_FILE = "empty_file"
    TOO_MANY_TASKS = "too_many_tasks"
    TOO_MANY_MODELS = "too_many_models"
    TOO_MANY_REQUIREMENTS = "too_many_requirements"
    MODEL_NOT_FOUND = "model_not_found"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    INPUT_DAMAGED = "input_damaged"
    TOO_MANY_ERRORS = "too_many_errors"


class InputError(NamedTuple):
    """One entry of a failed batch's `errors.data[]`. `line` counts from 1; None when the error is about no one line.

    `message` is ASCII, so that any database and any terminal takes it.
    """

    code: InputErrorCode
    message: str
    param: str | None
    line: int | None


@dataclass(slots=True)
class _Group:
    """Errors that may share an entry: the first of them, their number, and the first of their lines."""

    first: InputError
    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add(self, line: int | None, count: int = 1) -> None:
        self.count += count
        if line is not None and len(self.lines) < MAX_SHOWN_LINES:
            self.lines.append(line)

    def entry(self, *, are_equal: bool = True) -> InputError:
        if self.count == 1:
            return self.first
        more = " and others" if self.count > len(self.lines) else ""
        lines = f"lines {', '.join(map(str, self.lines))}{more}" if self.lines else ""
        if are_equal:
            what = f"{self.first.message} ({self.count} times{': ' if lines else ''}{lines})"
        else:
            what = f"And {self.count} more like these{', in ' if lines else ''}{lines}. The first: {self.first.message}"
        return self.first._replace(message=what)


class InputErrors:
    """All errors of one input."""

    def __init__(self) -> None:
        self.count = 0
        self._of_file: list[InputError] = []
        self._first: list[InputError] = []
        self._kinds: dict[tuple[InputErrorCode, str | None], dict[str | None, _Group]] = {}

    def add(self, error: InputError, count: int = 1) -> None:
        """Take an error of one line, or of `count` lines of which only the first is known."""
        self.count += count
        if len(self._first) < MAX_STORED_ERRORS:
            self._first.append(error)
        kind = (error.code, error.param)
        groups = self._kinds.get(kind)
        if groups is None:
            if len(self._kinds) >= MAX_STORED_ERRORS:
                return
            groups = self._kinds[kind] = {}
        message = error.message if error.message in groups or len(groups) < MAX_STORED_ERRORS else None
        group = groups.get(message)
        if group is None:
            group = groups[message] = _Group(error)
        group.add(error.line, count)

    def add_of_file(self, error: InputError) -> None:
        """Take an error that is about the file as a whole. They come first, so that no bound hides them."""
        self.count += 1
        self._of_file.append(error)

    def entries(self) -> list[InputError]:
        """Return at most a hundred entries in the order of lines, and one that says how many errors are in none."""
        if self.count <= MAX_STORED_ERRORS:
            return [*self._of_file, *_in_order(self._first)]
        room = MAX_STORED_ERRORS - len(self._of_file)
        share = max(1, room // max(1, len(self._kinds)))
        shown: list[InputError] = []
        left = self.count - len(self._of_file)
        for groups in list(self._kinds.values())[:room]:
            shown += _shared(list(groups.values()), share)
            left -= sum(group.count for group in groups.values())
        more = [InputError(InputErrorCode.TOO_MANY_ERRORS, f"And {left} more errors.", None, None)] if left else []
        return [*self._of_file, *_in_order(shown), *more]


def _shared(groups: list[_Group], most: int) -> list[InputError]:
    """Give the errors of one kind in at most so many entries; the last one is for all that have none of their own."""
    if len(groups) <= most:
        return [group.entry() for group in groups]
    own, others = groups[: most - 1], groups[most - 1 :]
    rest = _Group(others[0].first)
    for group in others:
        rest.count += group.count
        rest.lines += group.lines
    rest.lines = sorted(rest.lines)[:MAX_SHOWN_LINES]
    return [*(group.entry() for group in own), rest.entry(are_equal=False)]


def _in_order(errors: list[InputError]) -> list[InputError]:
    return sorted(errors, key=lambda error: error.line or 0)
