"""The envelope of every list (OPENAI_CONTRACT 1.8, 1.10)."""

from collections.abc import Sequence
from typing import Generic, Literal, Protocol, TypeVar

from app.schemas.wire import Wire

Item = TypeVar("Item")


class _Named(Protocol):
    @property
    def id(self) -> str: ...


NamedItem = TypeVar("NamedItem", bound=_Named)


class Listing(Wire, Generic[Item]):
    """One page. `has_more` is never missing, or clients ask once more than they need."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


def page(data: Sequence[NamedItem], *, has_more: bool) -> "Listing[NamedItem]":  # pydantic knows no protocols
    """Give a page whose next one begins after its last item."""
    return Listing(
        data=list(data),
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )
