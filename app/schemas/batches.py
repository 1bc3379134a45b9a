"""Batches on OpenAI's wire, with gpuyard's additions (OPENAI_CONTRACT 1.2, 1.3). Times in Unix seconds."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.domain.first_rows import MAX_KIND, MAX_ROWS
from app.schemas.files import MAX_EXPIRY_SECONDS, MIN_EXPIRY_SECONDS
from app.schemas.wire import Name, Wire

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")

# Characters, not bytes: a key of 40 Japanese characters is a key of 40.
MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]

UnsupportedParameters = Literal["fail", "drop"]
"""What happens to parameters that no worker takes: the batch fails, or its rows run without them and say so."""


class OutputExpiry(Wire):
    """How long result files live, from when they are made."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=MIN_EXPIRY_SECONDS, le=MAX_EXPIRY_SECONDS)


class NewBatch(Wire):
    """The arguments of a create. `pool` and all behind it are ours: `extra_body` of the SDK."""

    input_file_id: Name
    endpoint: str = Field(max_length=200)
    completion_window: str = Field(max_length=200)
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    output_expires_after: OutputExpiry | None = None
    pool: Name | None = None
    priority: int = Field(default=0, ge=0, le=9)
    group: str | None = Field(default=None, max_length=128)
    unsupported_parameters: UnsupportedParameters | None = None
    canary_rows: int | None = Field(default=None, ge=0, le=MAX_ROWS)


class NewRetry(Wire):
    """Which rows of an ended batch run again, and how: what is left out is as it was.

    `codes` chooses among the failed rows, by the codes that the batch's errors have, or by a part of one such as `429`.
    """

    rows: Literal["failed", "expired", "all"] = "failed"
    codes: Annotated[list[Annotated[str, StringConstraints(max_length=MAX_KIND)]], Field(max_length=20)] | None = None
    completion_window: str | None = Field(default=None, max_length=200)
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    output_expires_after: OutputExpiry | None = None
    pool: Name | None = None
    priority: int | None = Field(default=None, ge=0, le=9)
    group: str | None = Field(default=None, max_length=128)
    unsupported_parameters: UnsupportedParameters | None = None
    canary_rows: int | None = Field(default=None, ge=0, le=MAX_ROWS)


class BatchError(Wire):
    """One reason why a batch failed. `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(Wire):
    """What a failed validation found, or how the first rows failed."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class RequestCounts(Wire):
    """Rows: all of them, those answered, those failed. While it runs only what is stored counts."""

    total: int
    completed: int
    failed: int


class InputDetails(Wire):
    """Part of the usage."""

    cached_tokens: int


class OutputDetails(Wire):
    """Part of the usage."""

    reasoning_tokens: int


class BatchUsage(Wire):
    """Tokens of all rows answered."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class TopError(Wire):
    """Why rows failed, or lines kept a batch from running; `count` is of these."""

    code: str
    count: int
    message: str | None = None


class FailedRow(Wire):
    """One row that failed. `custom_id` is null where its line could not be read."""

    custom_id: str | None
    code: str
    message: str


class RowErrors(Wire):
    """Why rows failed, most frequent first; `count` is of `rows`: all failed rows once the batch has ended.

    `failed` are the first of them, in input order once it has ended.
    """

    object: Literal["list"] = "list"
    rows: int
    data: list[TopError]
    failed: list[FailedRow] = Field(default_factory=list)


class Live(Wire):
    """Rows finished and not handed in yet, as workers told last. For people: they may run again (R-32)."""

    completed: int
    failed: int


class YardView(Wire):
    """What only gpuyard says of a batch.

    `waiting_reason` stands while no worker is on it, or those that are fetch its model first or have no runtime that
    takes its rows, and while it cannot be validated or finalized; `live` while a worker is on it. `damaged` says which
    of its files is not what was written, once that was found. `answers_off_format` counts answers that are not the JSON
    which their rows asked for, `answers_other_model` those that name another model. `retry_of` is the batch whose rows
    it runs again, `retried_by` are those that run its own.
    """

    state: str
    pool: str
    priority: int
    group: str | None
    unsupported_parameters: UnsupportedParameters
    canary_rows: int
    shards: int
    workers: int
    rows_per_second: float | None
    eta_seconds: int | None
    waiting_reason: str | None
    damaged: str | None = None
    top_errors: list[TopError]
    answers_off_format: int = 0
    answers_other_model: int = 0
    live: Live | None = None
    retry_of: str | None = None
    retried_by: list[str] = Field(default_factory=list)


class BatchObject(Wire):
    """A batch."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage | None
    metadata: dict[str, str] | None
    gpuyard: YardView
