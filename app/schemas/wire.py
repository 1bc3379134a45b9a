"""The base of every wire type, and the types all rooms share."""

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, StringConstraints
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from app.domain.rows import Usage
from app.domain.timing import MAX_TOLERATION_SECONDS


def _stop_early(schema: Any) -> None:
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _stop_early(part)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "list":
        schema["fail_fast"] = True
    elif schema.get("type") == "dict" and "max_length" in schema:
        most, inner = schema["max_length"], cast("CoreSchema", dict(schema))

        def is_short(value: object) -> object:
            if isinstance(value, dict) and len(value) > most:
                raise PydanticKnownError(
                    "too_long", {"field_type": "Dictionary", "max_length": most, "actual_length": len(value)}
                )
            return value

        schema.clear()
        schema.update(core_schema.no_info_before_validator_function(is_short, inner))


class Wire(BaseModel):
    """A message between the two sides. Unknown keys are ignored, so two versions understand each other."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Stop at the first value of a list that is wrong: a caller is told one, and to note 50,000 is slow."""
        schema = handler(source)
        _stop_early(handler.resolve_ref_schema(schema))
        return schema


Name = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=128)]
"""A name or id from outside, for looking something up: no database takes a NUL in it."""


# Every number in what a caller sends is of one of these kinds, or has bounds of its own (tests/api/test_bounds.py).
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A count that any database takes."""
Size = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Bytes, as many as any database takes."""
Figure = Annotated[float, Field(ge=0, le=1e12)]
"""Something that was measured: a load, a rate, a share."""
Seconds = Annotated[float, Field(ge=0, le=MAX_TOLERATION_SECONDS)]
UnixSeconds = Annotated[float, Field(ge=0, le=1e11)]
LeaseId = Annotated[int, Field(ge=0, le=2**63 - 1)]
Moment = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A time of the database, in milliseconds."""
MAX_TOKENS = 2**40
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class UsageCounts(Wire):
    """Token counts as they travel; see app.domain.rows.Usage."""

    input_tokens: Tokens = 0
    cached_tokens: Tokens = 0
    output_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0
    total_tokens: Tokens = 0

    @classmethod
    def of(cls, usage: Usage) -> "UsageCounts":
        """Put a domain value on the wire. What a runtime made up stands as the most there can be: rows must go home."""
        return cls(
            input_tokens=min(usage.input_tokens, MAX_TOKENS),
            cached_tokens=min(usage.cached_tokens, MAX_TOKENS),
            output_tokens=min(usage.output_tokens, MAX_TOKENS),
            reasoning_tokens=min(usage.reasoning_tokens, MAX_TOKENS),
            total_tokens=min(usage.total_tokens, MAX_TOKENS),
        )

    def to_domain(self) -> Usage:
        """Take the domain value off the wire."""
        return Usage(
            self.input_tokens, self.cached_tokens, self.output_tokens, self.reasoning_tokens, self.total_tokens
        )
