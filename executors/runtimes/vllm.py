"""vLLM, and any other server with OpenAI's API (AR-02)."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import ClassVar

from app.domain.rows import Blame, Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, RuntimeLoad
from executors.answered_names import AnsweredNames
from executors.answers import reply_of
from executors.base import Ending
from executors.cancellation import CancelToken
from executors.error_bodies import misses_model, shown
from executors.gauges import read_load
from executors.http_loop import Outcome
from executors.http_wire import Answer, DeadlinePassed, HttpError
from executors.request_ids import new_request_id
from executors.runtimes.openai_compatible import ENDPOINTS, FirstTry, OpenAICompatibleExecutor, TimeLimit
from executors.settings import ExecutorSettings

_LIST_SECONDS = 60.0
"""How old a list of models may get, while nothing tells that it changed."""
_MISSED_SECONDS = 3600.0
"""So long a model that is not listed any more may come back: until then each look asks for the list."""
_MAX_LATE_PAGES = 10
_WITHOUT_GAUGES_SECONDS = 60.0
"""A server that had no gauges is not asked for them again before; another one may listen there by then."""


class VLLMExecutor(OpenAICompatibleExecutor):
    """One vLLM. A server of another make works too, it only tells less about itself."""

    kind: ClassVar[str] = "vllm"
    default_url: ClassVar[str | None] = "http://127.0.0.1:8000"

    def __init__(self, settings: ExecutorSettings, url: str | None = None) -> None:
        super().__init__(settings, url)
        self._list_again_at = float("-inf")
        self._listed_breaks = -1
        self._missed_until = float("-inf")
        self._no_gauges_until = float("-inf")
        self._names = AnsweredNames()
        self._looking = threading.Lock()
        self._late_pages = 0

    def look(self, deadline: float) -> RuntimeFacts:
        """Ask for its health. What it serves is asked for now and then, and when it may have become another server.

        A server without `/health` is asked for its models instead. Version and endpoints (vLLM has routes only for
        what its model can do) change only with a restart, so they are asked for when it was not alive before.
        """
        breaks, now = self.client().breaks, time.monotonic()
        has_health = self._health(deadline)
        if has_health and self._facts.alive and breaks == self._listed_breaks and now < self._list_again_at:
            return self._facts
        before = {model.id for model in self._facts.models}
        facts = super().look(deadline)
        if not before <= {model.id for model in facts.models}:
            self._missed_until = now + _MISSED_SECONDS
        self._listed_breaks, self._list_again_at = breaks, now if now < self._missed_until else now + _LIST_SECONDS
        if self._facts.alive:
            return replace(facts, version=self._facts.version, endpoints=self._facts.endpoints)
        return replace(facts, version=self._version(deadline), endpoints=self._endpoints(deadline))

    def forget(self) -> None:
        """Have the next look ask for the models."""
        self._list_again_at = float("-inf")

    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
        """Send the row until the runtime has given its answer, and see that it is of the model that was asked for.

        Some servers answer with the one model they have, whatever a row names. They get only rows of models they list,
        so a model that no list named means that another server may have taken the place of the one that was listed.
        """
        return self._checked(row, super().execute(row, timeout=timeout, cancelled=cancelled))

    def begin(self, row: Row, *, timeout: float, cancelled: CancelToken, ended: Callable[[Ending], None]) -> bool:
        """Send the row; a good answer, which nearly every row gets, needs nothing more."""
        if self._client is None:
            return False
        limit, request_id, began_at = TimeLimit(timeout), new_request_id(), time.monotonic()

        def rest(outcome: Outcome) -> Reply:
            first = FirstTry(request_id, began_at, (lambda: outcome) if isinstance(outcome, Answer) else outcome)
            read = partial(reply_of, row=row)
            exchange = partial(self.exchange, row.endpoint, row.body, read, limit, cancelled, first=first)
            return self._checked(row, self._guarded(row, exchange))

        def came(outcome: Outcome) -> None:
            ended(self._good_reply(row, outcome, request_id) or partial(rest, outcome))

        return self._client.begin(
            row.endpoint, row.body, request_id=request_id, deadline=limit.ends_at, cancelled=cancelled, ended=came
        )

    def _good_reply(self, row: Row, outcome: Outcome, request_id: str) -> Reply | None:
        """Read what nearly every row gets; None for all that needs another try, a closer look or a wait."""
        if not isinstance(outcome, Answer) or outcome.status != HTTPStatus.OK:
            return None
        self._answered_at = time.monotonic()
        try:
            reply = reply_of(outcome, request_id=request_id, row=row)
        except Exception:  # noqa: BLE001 - it is met again, and told, by who reads it next
            return None
        return reply if reply.body is not None and reply.ok and self._names.are_known(row.model, reply.body) else None

    def _checked(self, row: Row, reply: Reply) -> Reply:
        if misses_model(reply.status, reply.body, row.model):
            self._list_again_at = float("-inf")
        if reply.body is None or not reply.ok or self._names.are_known(row.model, reply.body):
            return reply
        with self._looking:
            if self._names.are_known(row.model, reply.body):  # another row looked meanwhile
                return reply
            self._list_again_at = float("-inf")
            if self.probe().serves(model=row.model, endpoint=row.endpoint):
                self._names.learn(reply.body)
                return reply
        message = f"{self.name} does not serve {row.model} any more"
        return Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, message), blame=Blame.RUNTIME)

    def load(self) -> RuntimeLoad | None:
        """Read `/metrics`, which vLLM leaves open when it has an API key."""
        if time.monotonic() < self._no_gauges_until:
            return None
        with contextlib.suppress(HttpError):
            answer = self.client().get("/metrics", deadline=time.monotonic() + self.settings.probe_seconds)
            load = read_load(answer.body) if answer.status == HTTPStatus.OK else None
            if load is None:
                self._no_gauges_until = time.monotonic() + _WITHOUT_GAUGES_SECONDS
            return load
        return None

    def _health(self, deadline: float) -> bool:
        """Tell whether it has a `/health`. Raises HttpError where that says no: it loads its model, or is broken."""
        answer = self.client().get("/health", deadline=deadline)
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and answer.status != HTTPStatus.NOT_IMPLEMENTED:
            is_loading = b"loading" in answer.body.lower()
            said = "it is loading its model" if is_loading else f"its health check says no: {shown(answer.body)}"
            raise HttpError(f"{said} (GET /health was answered {answer.status})")
        return answer.status == HTTPStatus.OK

    def is_vllm(self) -> bool:
        """Tell a vLLM from any other server: only it has both a `/version` and models `owned_by` vllm."""
        deadline = time.monotonic() + self.settings.probe_seconds
        try:
            version = self._get_json("/version", deadline)["version"]
            models = self._get_json("/v1/models", deadline)["data"]
            return isinstance(version, str) and any(model["owned_by"] == "vllm" for model in models)
        except Exception:  # noqa: BLE001 - anything may listen on that port
            return False

    def _version(self, deadline: float) -> str | None:
        with contextlib.suppress(HttpError, LookupError, TypeError, ValueError):
            return str(self._get_json("/version", deadline)["version"])
        return None

    def _endpoints(self, deadline: float) -> tuple[str, ...]:
        """Read them off the server's own page. A server without one is taken to have all.

        Raises DeadlinePassed while vLLM writes the page, the first time it is asked: to take a server that embeds for
        one that chats would cost rows. A server that never answers is not waited for.
        """
        try:
            paths = self._get_json("/openapi.json", deadline)["paths"]
            return tuple(endpoint for endpoint in ENDPOINTS if endpoint in paths)
        except DeadlinePassed:
            self._late_pages += 1
            if self._late_pages < _MAX_LATE_PAGES:
                raise
        except (HttpError, LookupError, TypeError, ValueError):
            pass
        return ENDPOINTS
