"""What each org has under way at this process, bounded: what one org opens is never taken from another."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.threads import CONTENTS
from app.blobs.store import BlobError
from app.domain.errors import TooManyAtOnce, TryLater
from app.domain.org_limits import ALL_ORGS, OrgLimits

_log = logging.getLogger("gpuyard.api")


class UnderWay(StrEnum):
    """What is bounded, by the names of `OrgLimits`."""

    STREAMS = "streams"
    POLLS = "polls"
    UPLOADS = "uploads"
    DOWNLOADS = "downloads"
    HAND_IN_BYTES = "hand_in_bytes"
    WEBHOOK_TESTS = "webhook_tests"


_COUNTED: Mapping[UnderWay, str] = {
    UnderWay.STREAMS: "open event streams",
    UnderWay.POLLS: "waiting workers",
    UnderWay.UPLOADS: "uploads under way",
    UnderWay.DOWNLOADS: "downloads under way",
    UnderWay.HAND_IN_BYTES: "bytes of results under way",
    UnderWay.WEBHOOK_TESTS: "webhook tests under way",
}


class InFlight:
    """Counts calls of this process. Used in the event loop's thread only."""

    def __init__(self, limits: OrgLimits) -> None:
        self._limits = limits
        self._of_org: Counter[tuple[UnderWay, str]] = Counter()
        self._of_all: Counter[UnderWay] = Counter()

    @contextmanager
    def hold(self, kind: UnderWay, org_id: str, amount: int = 1) -> Iterator[None]:
        """Count a call inside the block; one that alone is above a bound is let in when it is the only one.

        Raises TooManyAtOnce when its org has too much under way, TryLater when all orgs together have.
        """
        bound: int = getattr(self._limits, kind)
        mine = self._of_org[kind, org_id]
        if mine and mine + amount > bound:
            raise TooManyAtOnce(
                f"limit org_{kind} reached: an org may have at most {bound} {_COUNTED[kind]} at this API process; "
                "try again when one has ended",
                code=f"too_many_{kind}",
            )
        if self._of_all[kind] and self._of_all[kind] + amount > bound * ALL_ORGS:
            raise TryLater(f"this API process has too many {_COUNTED[kind]}; try again later", code=f"too_many_{kind}")
        self._add(kind, org_id, amount)
        try:
            yield
        finally:
            self._add(kind, org_id, -amount)

    def _add(self, kind: UnderWay, org_id: str, amount: int) -> None:
        self._of_all[kind] += amount
        self._of_org[kind, org_id] += amount
        if not self._of_org[kind, org_id]:
            del self._of_org[kind, org_id]


class Download(StreamingResponse):
    """An answer that counts as a download of its caller's org while it is sent; `close` is called however that ends.

    It ends before its declared length when a content turns out to be damaged: no wrong byte is sent.
    """

    def __init__(self, content: Iterator[bytes], *args: Any, close: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(CONTENTS.each(content), *args, **kwargs)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, or raise what `InFlight.hold` raises before anything of it is sent."""
        in_flight: InFlight = scope["app"].state.in_flight
        with ExitStack() as leaving:
            leaving.callback(self._close)
            leaving.enter_context(in_flight.hold(UnderWay.DOWNLOADS, scope["state"]["caller"].org_id))
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send what is as it was written. The server then drops the connection: the answer was not completed."""
        try:
            await super().stream_response(send)
        except BlobError as error:
            _log.error("an answer was cut off: %s", error)
