"""The frame of our middlewares: what is no HTTP passes by, and an answer is looked at where it begins."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Middleware:
    """Handles calls by `call`; anything else, such as the start of the app, goes on as it came."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        if scope["type"] == "http":
            await self.call(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP call."""
        raise NotImplementedError


def at_start(send: Send, look: Callable[[Message], None]) -> Send:
    """Wrap `send` so that `look` sees, and may change, the message that begins the answer."""

    async def looked_at(message: Message) -> None:
        if message["type"] == "http.response.start":
            look(message)
        await send(message)

    return looked_at
