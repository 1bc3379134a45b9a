"""The envelope of every list (OPENAI_CONTRACT 1.8, 1.10)."""

from typing import Generic, Literal, TypeVar

from app.schemas.wire import Wire

Item = TypeVar("Item")


class Listing(Wire, Generic[Item]):
    """One page. `has_more` is never missing, or clients ask once more than they need."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False
