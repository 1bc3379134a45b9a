"""What the values in JSON columns are, as far as code relies on it: one that holds another counts as unreadable.

What is read leniently on its way up (timings, what workers tell of runtimes and hosts) is `Any` here.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

STRICT = ConfigDict(strict=True)
"""JSON has numbers and texts, and nobody wrote one for the other."""


def _with(**kinds: Any) -> AfterValidator:
    """Have an object hold values of these kinds; a key may be missing where None is one of its kinds."""
    adapters = {key: TypeAdapter(kind, config=STRICT) for key, kind in kinds.items()}

    def check(value: dict[str, Any]) -> dict[str, Any]:
        for key, adapter in adapters.items():
            adapter.validate_python(value.get(key))
        return value

    return AfterValidator(check)


def _is_refusal(value: list[Any]) -> list[Any]:
    row, code, message = value
    if not (isinstance(row, int) and isinstance(code, str) and isinstance(message, str)):
        raise ValueError("no row number, code and message")  # noqa: TRY004 - pydantic takes no other
    return value


Count = Annotated[int, Field(ge=0)]
Need = Annotated[dict[str, Any], _with(endpoint=str, models=list[str], parameters=dict[str, list[str]] | None)]
"""What shards of a batch need of a worker (app.domain.eligibility.Requirement)."""
Refusal = Annotated[list[Any], AfterValidator(_is_refusal)]
"""A row that is answered without being run: (row, code, message)."""
Reason = Annotated[dict[str, Any], _with(code=str, message=str, line=int | None, param=str | None)]
"""An entry of a batch's errors."""
TopReason = Annotated[dict[str, Any], _with(code=str, count=int, message=str | None)]
LiveCounts = Annotated[dict[str, Any], _with(batch_id=str, completed=int, failed=int)]
"""What a worker told of its progress."""
