"""The worker's side of the wire: one method a route, typed answers (DESIGN 8, `app/schemas`).

Every method raises one of app.client.errors. `deadline_seconds` bounds how long a call that nobody answers is tried
again with the same bytes.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import httpx
from pydantic import ValidationError

from app.client.downloads import download
from app.client.errors import Refused
from app.client.http import Http
from app.schemas.claims import (
    ClaimAnswer,
    ClaimRequest,
    EndAnswer,
    FailureReport,
    ReleaseRequest,
    RowStart,
    RowStartAnswer,
)
from app.schemas.polls import Poll, PollAnswer
from app.schemas.pulls import ModelProgress
from app.schemas.segments import HandInAnswer, Progress
from app.schemas.wire import Wire
from app.schemas.workers import Bye, Heartbeat, HeartbeatAnswer, Hello, Welcome

BOOT_ID_HEADER = "x-gpuyard-boot-id"
CALL_SECONDS = 30.0
BYE_SECONDS = 2.0
POLL_MORE_SECONDS = 10.0
"""An answer to a poll may come so much later than asked."""
AnswerT = TypeVar("AnswerT", bound=Wire)


class ControlPlane:
    """Calls in the name of one worker process; `boot_id` goes with every call, so that a superseded one is known."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        boot_id: str,
        proxy: str | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = Http(base_url, api_key, proxy=proxy, transport=transport, clock=clock)
        self._boot = {BOOT_ID_HEADER: boot_id}

    def register(self, hello: Hello) -> Welcome:
        """Say hello, once; the caller's back-off decides about another try."""
        return self._post("/workers/register", hello, Welcome)

    def heartbeat(self, worker_id: str, beat: Heartbeat, *, timeout_seconds: float) -> HeartbeatAnswer:
        """Send one beat, once: a beat that is sent again is another beat, with another time."""
        return self._post(f"/workers/{worker_id}/heartbeat", beat, HeartbeatAnswer, timeout_seconds=timeout_seconds)

    def poll(self, poll: Poll) -> PollAnswer:
        """Wait for messages, once; the caller's back-off decides about another try."""
        return self._post("/workers/poll", poll, PollAnswer, timeout_seconds=poll.wait_seconds + POLL_MORE_SECONDS)

    def claim(self, request: ClaimRequest, *, deadline_seconds: float = CALL_SECONDS) -> ClaimAnswer:
        """Ask for shards; a lost answer is asked for again under the same request_id."""
        return self._post("/workers/claim", request, ClaimAnswer, deadline_seconds=deadline_seconds)

    def hand_in(
        self, body: bytes, *, ends: bool, deadline_seconds: float = CALL_SECONDS, as_boot: bool = True
    ) -> HandInAnswer:
        """Store finished rows; `body` is that of app.schemas.segments, sent byte for byte each time.

        `as_boot=False` is for what an earlier process of this worker left in the spool: it counts by its lease alone.
        """
        path = "/workers/upload-results" if ends else "/workers/results"
        return _parse(
            HandInAnswer,
            self._http.call(
                "POST",
                path,
                content=body,
                headers={"content-type": "application/octet-stream", **(self._boot if as_boot else {})},
                deadline_seconds=deadline_seconds,
            ),
        )

    def start_row(self, start: RowStart, *, deadline_seconds: float) -> RowStartAnswer:
        """Name the row of a cautious shard that is to start."""
        return self._post("/workers/start-row", start, RowStartAnswer, deadline_seconds=deadline_seconds)

    def release(self, request: ReleaseRequest, *, deadline_seconds: float = CALL_SECONDS) -> EndAnswer:
        """Hand leases back."""
        return self._post("/workers/release", request, EndAnswer, deadline_seconds=deadline_seconds)

    def report_failure(
        self, report: FailureReport, *, deadline_seconds: float = CALL_SECONDS, as_boot: bool = True
    ) -> EndAnswer:
        """Report that a shard could not be run."""
        return self._post(
            "/workers/report-failure", report, EndAnswer, deadline_seconds=deadline_seconds, as_boot=as_boot
        )

    def progress(self, progress: Progress, *, deadline_seconds: float = 0.0) -> None:
        """Report live counts; nothing depends on them."""
        self._send("/workers/progress", progress, timeout_seconds=BYE_SECONDS, deadline_seconds=deadline_seconds)

    def model_progress(self, progress: ModelProgress) -> None:
        """Tell how far a pull is, once; the next word tells more."""
        self._send("/workers/model-progress", progress, timeout_seconds=BYE_SECONDS)

    def bye(self, worker_id: str, bye: Bye) -> None:
        """Say the last word: one try of two seconds (BY-04)."""
        self._send(f"/workers/{worker_id}/bye", bye, timeout_seconds=BYE_SECONDS)

    def download(self, path: str, start: int, end: int, *, deadline_seconds: float = CALL_SECONDS) -> bytes:
        """Fetch the bytes from `start` up to, not including, `end`; a broken connection goes on where it broke."""
        return download(self._http, path, start, end, headers=self._boot, deadline_seconds=deadline_seconds)

    @property
    def silent_seconds(self) -> float:
        """How long the control plane has not answered; 0 while it does."""
        return self._http.reachability.silent_seconds

    def close(self) -> None:
        """End all waits and connections."""
        self._http.close()

    def _post(
        self,
        path: str,
        message: Wire,
        answer: type[AnswerT],
        *,
        deadline_seconds: float = 0.0,
        timeout_seconds: float | None = None,
        as_boot: bool = True,
    ) -> AnswerT:
        found = self._send(
            path, message, deadline_seconds=deadline_seconds, timeout_seconds=timeout_seconds, as_boot=as_boot
        )
        return _parse(answer, found)

    def _send(
        self,
        path: str,
        message: Wire,
        *,
        deadline_seconds: float = 0.0,
        timeout_seconds: float | None = None,
        as_boot: bool = True,
    ) -> object:
        answer: object = self._http.call(
            "POST",
            path,
            content=message.model_dump_json().encode(),
            headers=self._boot if as_boot else None,
            deadline_seconds=deadline_seconds,
            timeout_seconds=timeout_seconds,
        )
        return answer


def _parse(answer: type[AnswerT], found: object) -> AnswerT:
    try:
        return answer.model_validate(found)
    except ValidationError as error:
        raise Refused(f"the control plane speaks another language: {error}") from error
