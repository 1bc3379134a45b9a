"""What each org has under way at this process, bounded: what one org opens is never taken from another."""

import logging
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.threads import Threads
from app.blobs.store import BlobError
from app.domain.errors import TooManyAtOnce, TryLater
from app.domain.org_limits import ALL_ORGS, OrgLimits

AnswerT = TypeVar("AnswerT", bound=Response)
_log = logging.getLogger("gpuyard.api")


class UnderWay(StrEnum):
    """What is bounded, by the names of `OrgLimits`."""

    STREAMS = "streams"
    POLLS = "polls"
    UPLOADS = "uploads"
    DOWNLOADS = "downloads"
    RETRIES = "retries"
    INPUTS = "inputs"
    HAND_INS = "hand_ins"
    HAND_IN_BYTES = "hand_in_bytes"
    WEBHOOK_TESTS = "webhook_tests"
    BODIES = "bodies"
    BODY_BYTES = "body_bytes"


_COUNTED: Mapping[UnderWay, str] = {
    UnderWay.STREAMS: "open event streams",
    UnderWay.POLLS: "waiting workers",
    UnderWay.UPLOADS: "uploads under way",
    UnderWay.DOWNLOADS: "downloads under way",
    UnderWay.RETRIES: "retries of batches under way",
    UnderWay.INPUTS: "downloads of workers under way",
    UnderWay.HAND_INS: "calls with results under way",
    UnderWay.HAND_IN_BYTES: "bytes of results under way",
    UnderWay.WEBHOOK_TESTS: "webhook tests under way",
    UnderWay.BODIES: "calls whose body has not arrived",
    UnderWay.BODY_BYTES: "bytes of bodies under way",
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
                f"limit org_{kind} reached: {mine:,} of at most {bound:,} {_COUNTED[kind]} at this API process; "
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

    @contextmanager
    def sending(self, kind: UnderWay, org_id: str) -> Iterator["Sending"]:
        """Count a call inside the block, and until its answer is sent where `Sending.keep` has it. Raises as `hold`."""
        with ExitStack() as leaving:
            leaving.enter_context(self.hold(kind, org_id))
            yield Sending(leaving)

    def _add(self, kind: UnderWay, org_id: str, amount: int) -> None:
        self._of_all[kind] += amount
        self._of_org[kind, org_id] += amount
        if not self._of_org[kind, org_id]:
            del self._of_org[kind, org_id]


class Download(StreamingResponse):
    """A content as an answer, read in `threads`; `content` is closed however its sending ends.

    It ends before its declared length when a content turns out to be damaged: no wrong byte is sent.
    """

    def __init__(self, content: Generator[bytes], *args: Any, threads: Threads, **kwargs: Any) -> None:
        super().__init__(threads.each(content), *args, **kwargs)
        self.leaving = ExitStack()
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self.leaving, closing(self._content):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send what is as it was written. The server then drops the connection: the answer was not completed."""
        try:
            await super().stream_response(send)
        except BlobError as error:
            _log.error("an answer was cut off: %s", error)


class Sending:
    """A call that may be counted for longer than its route's function runs."""

    def __init__(self, leaving: ExitStack) -> None:
        self._leaving = leaving

    def keep(self, answer: AnswerT) -> AnswerT:
        """Have a download counted until it is sent; any other answer is short."""
        if isinstance(answer, Download):
            answer.leaving = self._leaving.pop_all()
        return answer
