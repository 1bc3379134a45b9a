"""How far the pull of a model is, on the wire (A-06, B-28).

POST /workers/model-progress    ModelProgress -> 204    409 superseded
"""

from typing import Annotated

from pydantic import Field

from app.domain.pulls import Pull, PullStatus
from app.schemas.wire import Name, UnixSeconds, Wire
from app.schemas.workers import MAX_MODEL_NAME, ModelName, Opaque

Bytes = Annotated[int, Field(ge=0, le=2**53)]
"""What JSON numbers hold exactly."""
MAX_ERROR = 2_000


class PullInfo(Wire):
    """One pull. `number` counts those of a worker's process, `total` is 0 while nobody knows it.

    `at` is when the control plane heard of it last, in Unix seconds.
    """

    number: int = Field(ge=1, le=2**31 - 1)
    runtime: str = Field(max_length=200)
    model: ModelName
    status: PullStatus
    completed: Bytes = 0
    total: Bytes = 0
    error: str = Field(default="", max_length=MAX_ERROR)
    at: UnixSeconds = 0.0

    @classmethod
    def of(cls, pull: Pull, *, at: float = 0.0) -> "PullInfo":
        """Put a pull on the wire; what a runtime or a third party's executor made up is cut to what fits."""
        return cls(
            number=pull.number,
            runtime=pull.runtime[:200],
            model=pull.model[:MAX_MODEL_NAME],
            status=pull.status,
            completed=min(pull.completed, 2**53),
            total=min(pull.total, 2**53),
            error=pull.error[:MAX_ERROR],
            at=at,
        )

    def to_domain(self) -> Pull:
        """Take the pull off the wire."""
        return Pull(
            number=self.number,
            runtime=self.runtime,
            model=self.model,
            status=self.status,
            completed=self.completed,
            total=self.total,
            error=self.error,
        )


class ModelProgress(PullInfo):
    """How far a worker's pull is. Sent about once a second; late and doubled ones change nothing (app.domain.pulls)."""

    worker_id: Name
    boot_id: Opaque
