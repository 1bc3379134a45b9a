"""What all runtimes with OpenAI's API share: sending a row, trying again, looking at models."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from app.domain.rows import Blame, Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.answers import reply_of
from executors.base import BaseExecutor, ExecutorUnavailable
from executors.cancellation import CancelToken, RowCancelled
from executors.content_encodings import Undecodable
from executors.error_bodies import is_overflow, shown
from executors.http_client import ClientClosed, HttpClient
from executors.http_wire import Answer, AnswerTooLarge, ConnectionCut, DeadlinePassed, HttpError, Unreachable
from executors.request_ids import new_request_id
from executors.retrying import Retries
from executors.settings import ExecutorSettings

log = logging.getLogger(__name__)

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")

_TOO_MUCH = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})

_BUSY_SECONDS = 30.0
"""So long a runtime that is slow to answer a probe is busy, not dead: since its last answer to a row, or since its last
quick probe while rows are there. Some servers have so few threads for HTTP that rows in flight take all of them.
"""


class Read(Protocol):
    """How a runtime's answer becomes a reply. `request_id` is ours."""

    def __call__(self, answer: Answer, *, request_id: str) -> Reply:
        """Never raises."""
        ...


class FirstTry(NamedTuple):
    """A try that was begun: its request id, when that was, and what gives its answer or raises as `post` does."""

    request_id: str
    began_at: float
    answer: Callable[[], Answer]


class TimeLimit:
    """The time of one row, over all its tries."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ends_at = time.monotonic() + seconds

    def give_back(self, seconds: float) -> None:
        """Do not count this long: the row could not begin."""
        self.ends_at += seconds

    def was_short(self, tried_at: float) -> bool:
        """Tell a try that had less than half of the row's time: the refusals before it had the rest."""
        return time.monotonic() - tried_at < self.seconds / 2


class OpenAICompatibleExecutor(BaseExecutor):
    """Speaks OpenAI's API to one base URL. Subclasses say what their runtime tells about itself."""

    kind: ClassVar[str] = "openai"

    def __init__(self, settings: ExecutorSettings, url: str | None = None) -> None:
        super().__init__(settings, url)
        self._facts = RuntimeFacts(name=self.name, kind=self.kind, alive=False)
        self._answered_at = float("-inf")
        self._quick_at = time.monotonic()
        self._client = self._connect_to(self.url) if self.url else None

    def probe(self) -> RuntimeFacts:
        """Ask for models, version and endpoints."""
        deadline = time.monotonic() + self.settings.probe_seconds
        try:
            self._facts = self.look(deadline)
            self._quick_at = time.monotonic()
        except DeadlinePassed as error:
            if not self._is_busy():
                self._facts = replace(self._facts, alive=False, reason=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a runtime says, a probe is an answer
            self._facts = replace(self._facts, alive=False, reason=str(error) or type(error).__name__)
        return self._facts

    def look(self, deadline: float) -> RuntimeFacts:
        """Make fresh facts. Raises anything when the runtime is not there or makes no sense."""
        return RuntimeFacts(
            name=self.name, kind=self.kind, alive=True, models=self._listed_models(deadline), endpoints=ENDPOINTS
        )

    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
        """Send the row until the runtime has given its answer."""
        return self._guarded(row, lambda: self._execute(row, timeout, cancelled))

    def _guarded(self, row: Row, execute: Callable[[], Reply]) -> Reply:
        try:
            return execute()
        except RowCancelled:
            raise
        except Exception as error:
            log.exception("row failed unexpectedly", extra={"custom_id": row.custom_id, "runtime": self.name})
            return Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}"))

    def close(self) -> None:
        """Cut all connections."""
        if self._client:
            self._client.close()

    def _execute(self, row: Row, timeout: float, cancelled: CancelToken) -> Reply:
        return self.exchange(row.endpoint, row.body, partial(reply_of, row=row), TimeLimit(timeout), cancelled)

    def exchange(
        self,
        path: str,
        body: bytes,
        read: Read,
        limit: TimeLimit,
        cancelled: CancelToken,
        before: Callable[[], Answer | None] = lambda: None,
        first: FirstTry | None = None,
    ) -> Reply:
        """Send a body until the runtime has given its answer, which `read` makes a reply of.

        `before` comes before each try, and may give an answer that stands for the runtime's. `first` is a try that was
        made already.
        """
        retries = Retries(first.began_at if first else time.monotonic())
        reply: Reply | None = None
        while True:
            cancelled.raise_if_cancelled()
            request_id, tried_at = (first.request_id, first.began_at) if first else (new_request_id(), time.monotonic())
            tried, first = first, None
            try:
                answer = self._first_answer(tried) or before() or self._post(path, body, request_id, limit, cancelled)
            except Unreachable as error:
                reply = unavailable(f"no connection to {error}", Blame.RUNTIME)
                delay = retries.after_unreachable()
            except ConnectionCut as error:
                retries.after_cut()
                reply, delay = unavailable(str(error), Blame.UNCLEAR), None
            except DeadlinePassed:
                return _timed_out(reply, retries, limit, tried_at)
            except (AnswerTooLarge, Undecodable, ClientClosed) as error:
                return _unusable(error)
            else:
                self._answered_at = time.monotonic()
                self.refusals += answer.status in _TOO_MUCH
                reply = read(answer, request_id=request_id)
                judged = reply.status is None or is_overflow(reply.status, reply.body)
                delay = retries.after_answer(None if judged else reply.status, answer)
            if delay is None or time.monotonic() + delay >= limit.ends_at:
                # An answer of the row's own is as it should be already: no copy for most rows.
                if retries.blame is Blame.ROW:
                    return reply
                return replace(reply, blame=retries.blame, retry_after=retries.retry_after)
            cancelled.sleep(delay)

    def _first_answer(self, tried: FirstTry | None) -> Answer | None:
        """Return what a try that was begun has brought; None when nothing was, or when the server has moved."""
        answer = tried.answer() if tried else None
        return answer if answer is None or self.client().moved_to(answer) is None else None

    def _post(self, path: str, body: bytes, request_id: str, limit: TimeLimit, cancelled: CancelToken) -> Answer:
        return self.client().post(path, body, request_id=request_id, deadline=limit.ends_at, cancelled=cancelled)

    def _is_busy(self) -> bool:
        now = time.monotonic()
        has_rows = self._client is not None and self._client.in_use > 0
        return now - self._answered_at <= _BUSY_SECONDS or (has_rows and now - self._quick_at <= _BUSY_SECONDS)

    def client(self) -> HttpClient:
        """Give the client for the next exchange. Raises Unreachable when there is nothing to talk to."""
        if self._client is None:
            raise Unreachable(f"{self.kind} has no URL")
        return self._client

    def _connect_to(self, url: str) -> HttpClient:
        try:
            return HttpClient(
                url,
                api_key=self.settings.api_key,
                connect_seconds=self.settings.connect_seconds,
                max_answer_bytes=self.settings.max_answer_bytes,
            )
        except ValueError as error:
            raise ExecutorUnavailable(f"Runtime {self.kind}: {error}") from error

    def _listed_models(self, deadline: float) -> tuple[ServedModel, ...]:
        entries = self._get_json("/v1/models", deadline)["data"]
        return tuple(ServedModel(str(entry["id"]), _other_names(entry)) for entry in entries)

    def _get_json(self, path: str, deadline: float) -> Any:
        """Get a JSON value. Raises HttpError, with the status where it is not 200."""
        answer = self.client().get(path, deadline=deadline)
        if answer.status != 200:  # noqa: PLR2004 - HTTP: OK
            said = shown(answer.body[:200])
            hint = " (its key belongs into GPUYARD_RUNTIME_API_KEY)" if answer.status in {401, 403} else ""
            raise HttpError(f"GET {path} was answered {answer.status}{hint}: {said}")
        return msgspec.json.decode(answer.body)


def _other_names(entry: dict[str, Any]) -> tuple[str, ...]:
    """The aliases that llama.cpp lists beside a model's id, itself among them."""
    aliases = entry.get("aliases")
    return tuple(str(alias) for alias in aliases if alias != entry["id"]) if isinstance(aliases, list) else ()


def _failed(code: RowErrorCode, message: str, blame: Blame = Blame.ROW) -> Reply:
    return Reply(error=RowError(code, message), blame=blame)


def _unusable(error: AnswerTooLarge | Undecodable | ClientClosed) -> Reply:
    if isinstance(error, ClientClosed):
        return unavailable(str(error), Blame.RUNTIME)
    return _failed(
        RowErrorCode.INTERNAL_ERROR, str(error), Blame.UNCLEAR if isinstance(error, Undecodable) else Blame.ROW
    )


def _timed_out(before: Reply | None, retries: Retries, limit: TimeLimit, tried_at: float) -> Reply:
    """Make the reply of a row whose time is over; `before` is what its try before the last one brought."""
    if before is not None and retries.blame is Blame.RUNTIME and limit.was_short(tried_at):
        return replace(before, blame=Blame.RUNTIME, retry_after=retries.retry_after)
    return _failed(RowErrorCode.REQUEST_TIMEOUT, f"the runtime gave no answer within {limit.seconds:g} s")


def unavailable(message: str, blame: Blame) -> Reply:
    """Make the reply of a row that got no answer."""
    return Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, message), blame=blame)
