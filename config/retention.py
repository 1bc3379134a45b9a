"""Settings of what is kept for how long (decision 60)."""

from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from config.fields import Common

DAY_SECONDS = 86_400


class RetentionSettings(Common):
    """How long things live. The retention sweep takes them some time after that, a bounded number a pass."""

    file_retention_seconds: PositiveInt = Field(
        30 * DAY_SECONDS, description="Life of a file of purpose batch when the upload names none."
    )
    blob_retention_seconds: PositiveInt = Field(DAY_SECONDS, description="Life of contents that nothing refers to.")
    event_retention_seconds: PositiveInt = Field(30 * DAY_SECONDS, description="Life of an event.")
    segment_retention_seconds: PositiveInt = Field(
        DAY_SECONDS,
        description="So long after a batch's end the rows as workers handed them in are kept beside its result files.",
    )
    job_retention_seconds: PositiveInt = Field(
        7 * DAY_SECONDS, description="So long after a batch's end its shards and their leases are kept."
    )
    batch_retention_seconds: Annotated[int, Field(ge=DAY_SECONDS)] = Field(
        365 * DAY_SECONDS,
        description="So long after its end a batch is listed; its files have lives of their own. At least a day, as "
        "long as an Idempotency-Key means the batch it made.",
    )
    webhook_retention_seconds: PositiveInt = Field(
        30 * DAY_SECONDS,
        description="Life of what is known of a webhook that was sent or given up, and of a deleted endpoint.",
    )
    worker_retention_seconds: PositiveInt = Field(
        30 * DAY_SECONDS, description="So long after it was last heard of a worker is listed."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.segment_retention_seconds <= self.job_retention_seconds <= self.batch_retention_seconds:
            raise ValueError(
                "segment_retention_seconds <= job_retention_seconds <= batch_retention_seconds must hold, and "
                f"{self.segment_retention_seconds} <= {self.job_retention_seconds} <= {self.batch_retention_seconds} "
                "does not"
            )
        return self
