"""HEAD for whatever GET is for: what balancers probe with, and what tells of a download before it is begun."""

from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from app.api.middleware import Middleware


class Heads(Middleware):
    """Inside of what names and times calls, to which HEAD is HEAD. A route may have a HEAD of its own."""

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer HEAD as GET would begin. What comes behind that, as of a stream of events, hears that nobody reads."""
        routes = scope["app"].routes
        if scope["method"] != "HEAD" or any(route.matches(scope)[0] is Match.FULL for route in routes):
            await self.app(scope, receive, send)
            return
        is_answered = False

        async def begin(message: Message) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                await send(message)
                await send({"type": "http.response.body"})

        asked = {**scope, "method": "GET"}
        try:
            await self.app(asked, receive, begin)
        finally:
            scope["route"] = asked.get("route")
