"""The public API as a person's tool calls it: parsed JSON out, the error envelope as an exception."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import httpx

from app.client.errors import TryLater
from app.client.http import Http, json_bytes

PATIENCE_SECONDS = 3.0
BUSY_SECONDS = 60.0


class PublicApi:
    """Files, batches, workers and the rest, for the CLI. Raises app.client.errors.

    Reads are tried for 3 s. So is any call that the API refused with a `Retry-After`, for then nothing was done; where
    it has too many of that kind under way, for 60 s. `busy` is called once, with what the API says then.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        proxy: str | None = None,
        transport: httpx.BaseTransport | None = None,
        busy: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._http = Http(base_url, api_key, proxy=proxy, transport=transport, patience_with=self._patience_with)
        self._busy = busy
        self._is_busy = False

    def _patience_with(self, error: TryLater) -> float:
        if error.is_busy:
            if not self._is_busy:
                self._busy(error.message)
            self._is_busy = True
            return BUSY_SECONDS
        # A proxy's 503 has no code, and may come after the API has done what was asked.
        return PATIENCE_SECONDS if error.retry_after is not None and error.code is not None else 0.0

    def get(self, path: str, **params: Any) -> Any:
        """Read an object. Parameters that are None are left out."""
        return self._http.call("GET", path, params=_given(params), deadline_seconds=PATIENCE_SECONDS)

    def each(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Read a list to its end, page after page; `limit` is a page's. Parameters that are None are left out."""
        after = None
        while True:
            page = self.get(path, after=after, **params)
            yield from page["data"]
            if not page.get("has_more") or not page["data"]:
                return
            after = page["data"][-1]["id"]

    def post(
        self,
        path: str,
        body: Any = None,
        *,
        files: Any = None,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        deadline_seconds: float = 0.0,
        once_only: bool = False,
    ) -> Any:
        """Create or change: JSON by `body`, a form by `files` and `data`. Without an answer it is not sent again.

        A repeat could act twice. With an `Idempotency-Key` in `headers` a deadline may be given. `once_only`: the body
        cannot be sent twice, whatever the answer.
        """
        return self._http.call(
            "POST",
            path,
            content=None if body is None else json_bytes(body),
            files=files,
            data=data,
            headers=headers,
            timeout_seconds=timeout_seconds,
            deadline_seconds=deadline_seconds,
            once_only=once_only,
        )

    def patch(self, path: str, body: Any) -> Any:
        """Change an object to what `body` says: the same however often it is sent."""
        return self._http.call("PATCH", path, content=json_bytes(body), deadline_seconds=PATIENCE_SECONDS)

    def delete(self, path: str) -> Any:
        """Delete an object."""
        return self._http.call("DELETE", path, deadline_seconds=PATIENCE_SECONDS)

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, once_only: bool = False, **params: Any
    ) -> Iterator[httpx.Response]:
        """Open a body to be read piece by piece (`iter_bytes`, `iter_lines` only for server-sent events)."""
        with self._http.stream("GET", path, headers=headers, params=_given(params), once_only=once_only) as response:
            yield response

    def close(self) -> None:
        """End connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def path_to(*parts: str) -> str:
    """Give the path of an object whose names are somebody's own words: none of them can leave its place."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
