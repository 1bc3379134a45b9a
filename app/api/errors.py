"""Every error leaves in OpenAI's envelope, whoever raised it (OPENAI_CONTRACT 1.10)."""

import json
import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.blobs.store import BlobDamaged, BlobFull, BlobMissing, BlobUnavailable
from app.db.errors import DatabaseFull
from app.db.store import DatabaseUnavailable
from app.domain.errors import BadRequest, Conflict, Encoded, LimitReached, Refusal, TryLater, Unreadable

RETRY_AFTER_SECONDS = 2
_SHOWN_DIGITS = 40
E = TypeVar("E", bound=Exception)
_log = logging.getLogger("gpuyard.api")
_HTTP_CODES = {404: "unknown_url", 405: "method_not_allowed"}


def add_handlers(app: FastAPI) -> None:
    """Answer for every exception that is somebody's answer; what is left is our bug and ends in `bug`."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DatabaseUnavailable, _away)
    app.add_exception_handler(BlobUnavailable, _away)
    app.add_exception_handler(BlobMissing, _content_lost)
    app.add_exception_handler(BlobDamaged, _content_damaged)


def envelope(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Write an error. The JSON is ASCII, so whatever a caller sent can be quoted back."""
    body = json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})
    return Response(body, status, headers=dict(headers or {}), media_type="application/json")


def of_refusal(refusal: Refusal) -> Response:
    """Write a use case's *no*. Where trying again does not help it says so: the SDK retries every 409, 429 and 500."""
    headers = {}
    if isinstance(refusal, Conflict | LimitReached | Unreadable):
        headers["x-should-retry"] = "false"
    if isinstance(refusal, TryLater):
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    if isinstance(refusal, Encoded):
        headers["accept-encoding"] = "identity"  # RFC 9110, 15.5.16
    return envelope(
        refusal.status, refusal.message, kind=refusal.kind, code=refusal.code, param=refusal.param, headers=headers
    )


def bug(request_id: str) -> Response:
    """Write what a caller hears of a bug: enough to find it in the log."""
    message = f"gpuyard met a bug while it answered this; the log has it under {request_id}"
    return envelope(500, message, kind="server_error", code="internal_error")


def refusal_of(problem: Mapping[str, Any]) -> BadRequest:
    """Turn one of pydantic's errors into a refusal that names the argument as the caller wrote it."""
    where = [str(part) for part in problem["loc"] if part not in {"body", "query", "path", "header"}]
    param = where[0] if where else None
    if problem["type"] == "json_invalid":
        return BadRequest("We could not parse the JSON body of your request.", code="invalid_json")
    if problem["type"] == "missing" and param is not None:
        return BadRequest(
            f"Missing required parameter: '{'.'.join(where)}'.", code="missing_required_parameter", param=param
        )
    if param is None:
        return BadRequest(
            "This call takes a JSON object as its body, sent with `Content-Type: application/json`.",
            code="invalid_body",
        )
    if (bound := _integer_bound(problem)) is not None:
        code, words = bound
        return BadRequest(f"Invalid '{'.'.join(where)}': {words}", code=code, param=param)
    return BadRequest(f"Invalid value for '{'.'.join(where)}': {problem['msg']}.", code="invalid_value", param=param)


def _integer_bound(problem: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return OpenAI's code and words for an integer out of its bounds; None for any other problem."""
    bounds = {
        "less_than_equal": ("integer_above_max_value", "above maximum value. Expected a value <=", "le"),
        "greater_than_equal": ("integer_below_min_value", "below minimum value. Expected a value >=", "ge"),
    }
    if problem["type"] not in bounds:
        return None
    code, words, name = bounds[problem["type"]]
    bound, given = problem["ctx"][name], problem["input"]
    if not isinstance(bound, int) or isinstance(given, float):
        return None
    return code, f"integer {words} {bound}, but got {str(given)[:_SHOWN_DIGITS]} instead."


async def _refusal(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    return of_refusal(_as(Refusal, error))


async def _invalid(request: Request, error: Exception) -> Response:  # noqa: ARG001 - FastAPI's signature
    return of_refusal(refusal_of(_as(RequestValidationError, error).errors()[0]))


async def _http(request: Request, error: Exception) -> Response:
    http = _as(HTTPException, error)
    if isinstance(http.__cause__, Refusal):
        # FastAPI turns whatever is raised while it reads a body into a 400 of its own.
        return of_refusal(http.__cause__)
    messages = {
        404: f"Invalid URL ({request.method} {request.url.path}){_below_v1(request)}",
        405: f"Not allowed to {request.method} on {request.url.path}",
    }
    message = messages.get(http.status_code, str(http.detail))
    return envelope(http.status_code, message, code=_HTTP_CODES.get(http.status_code), headers=http.headers)


def _below_v1(request: Request) -> str:
    """Say what a client lacks whose base URL does not end in /v1; nothing for any other wrong URL."""
    meant = f"/v1{request.url.path}"
    scope = {**request.scope, "path": meant}
    if not any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
        return ""
    return f". There is {meant}: an OpenAI client's base URL ends in /v1"


async def _away(request: Request, error: Exception) -> Response:
    _log.warning("%s %s: %s", request.method, request.url.path, error)
    if isinstance(error, BlobFull | DatabaseFull):
        disk = "contents" if isinstance(error, BlobFull) else "database"
        message = f"the disk of the server's {disk} is full and nothing was stored; an operator has to make room"
        return of_refusal(TryLater(message, code="storage_full"))
    what = error.reason if isinstance(error, DatabaseUnavailable) else "the store of contents is away for the moment"
    return of_refusal(TryLater(f"{what}; nothing was changed", code="unavailable"))


async def _content_lost(request: Request, error: Exception) -> Response:
    _log.error("%s %s: %s", request.method, request.url.path, error)
    return envelope(404, "the content of this file is gone", code="content_missing")


async def _content_damaged(request: Request, error: Exception) -> Response:
    damaged = _as(BlobDamaged, error)
    _log.error("%s %s: %s", request.method, request.url.path, damaged)
    return of_refusal(Conflict(f"a content is damaged on the server: {damaged.what}", code="content_damaged"))


def _as(kind: type[E], error: Exception) -> E:
    if not isinstance(error, kind):
        raise TypeError(kind) from error
    return error
