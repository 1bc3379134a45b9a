"""Events on the wire: GET /v1/events, GET /v1/batches/{id}/events (server-sent)."""

from typing import Any, Literal

from app.schemas.wire import Wire


class EventObject(Wire):
    """What happened. `id` is the cursor to go on from; `at` is in seconds with milliseconds."""

    id: str
    object: Literal["event"] = "event"
    at: float
    type: str
    subject: str
    actor: str
    data: dict[str, Any]
