"""Rows: one line of a batch's input, what became of it, and the one shape of a row's error (B-11 to B-15, R-21)."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class RowErrorCode(StrEnum):
    """Why a row has no answer of a runtime. Grouped by who sets it."""

    # the control plane at validation, or the worker's own pre-check
    UNSUPPORTED_PARAMETER = "UNSUPPORTED_PARAMETER"
    DUPLICATE_CUSTOM_ID = "DUPLICATE_CUSTOM_ID"
    INVALID_JSON = "INVALID_JSON"
    # the worker, while the row ran
    INTERNAL_ERROR = "INTERNAL_ERROR"
    MODEL_NOT_FOUND = "model_not_found"
    REQUEST_TIMEOUT = "request_timeout"
    RUNTIME_UNAVAILABLE = "runtime_unavailable"
    # the control plane, for rows that never ran to an end
    WORKER_LOST = "worker_lost"
    BATCH_CANCELLED = "batch_cancelled"
    BATCH_EXPIRED = "batch_expired"
    BATCH_STOPPED = "batch_stopped"
    # the control plane or the worker, for rows whose stored bytes are not what was written, or are gone
    INPUT_DAMAGED = "input_damaged"
    RESULT_DAMAGED = "result_damaged"


@dataclass(frozen=True, slots=True)
class RowError:
    """The top-level `error` of an output line; its `response` is then null."""

    code: RowErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one row, or the sum over many. All counts are tokens."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Self) -> "Usage":
        """Sum field by field."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.total_tokens + other.total_tokens,
        )


def total(usages: Collection[Usage]) -> Usage:
    """Sum the usage of many rows at once: objects in between would cost more than the sum."""
    return Usage(
        sum(usage.input_tokens for usage in usages),
        sum(usage.cached_tokens for usage in usages),
        sum(usage.output_tokens for usage in usages),
        sum(usage.reasoning_tokens for usage in usages),
        sum(usage.total_tokens for usage in usages),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One row as a worker runs it. `body` is the request's JSON as it stood in the file, never re-encoded.

    `parameters` are what it asks for that not every runtime takes (app.domain.parameters). `may_drop`: where no runtime
    takes them they are left out, and the reply says so; else the row fails. `dropped` were left out already, because
    they reach across requests.
    """

    number: int
    custom_id: str
    endpoint: str
    model: str
    body: bytes
    parameters: frozenset[str] = frozenset()
    may_drop: bool = False
    dropped: tuple[str, ...] = ()


class Blame(StrEnum):
    """Whose doing a row's reply is, so that a runtime's trouble never burns rows (B-14)."""

    ROW = "row"
    """The runtime judged or answered this row: the reply stands."""
    RUNTIME = "runtime"
    """The runtime was not reached, or said that it takes nothing now: the row never began and may run again."""
    UNCLEAR = "unclear"
    """The runtime had the row and ended without an answer to it: another try tells which of the two it was."""
    GATEWAY = "gateway"
    """It may come from what stands before the runtime: that counts as away, until it has lasted for too long."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a row: exactly one of `status` (with `body`) and `error` is set.

    `body` is one valid JSON value on one line, the runtime's own bytes wherever they were that already. A reply that
    does not blame the row is stored only when the worker gives up on trying again, which is not to be before
    `retry_after` seconds have passed. `dropped` are parameters that were left out of the row's body, by the keys they
    have there.
    """

    status: int | None = None
    body: bytes | None = None
    request_id: str | None = None
    error: RowError | None = None
    usage: Usage = Usage()
    blame: Blame = Blame.ROW
    retry_after: float = 0.0
    dropped: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """A row is completed when the runtime answered it with a status below 400."""
        return self.status is not None and self.status < 400  # noqa: PLR2004 - HTTP: 4xx and 5xx are errors
