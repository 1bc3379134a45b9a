"""Fetching a model through Ollama (B-28): a stream of progress in which only the word `success` is one.

Ollama keeps what it has of a model, so a pull that broke off goes on when it is asked for again.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from executors.base import PullFailed
from executors.cancellation import CancelToken
from executors.http_client import HttpClient
from executors.http_wire import DeadlinePassed, HttpError

PATH: Final = "/api/pull"
_VAIN_TRIES: Final = 3
"""So many tries may bring nothing new, one after the other."""

Progress = Callable[[int, int], None]


class _Line(msgspec.Struct):
    status: str = ""
    error: str = ""
    digest: str = ""
    total: int = 0
    completed: int = 0


class _Broken(Exception):
    """A try that ended before success; the message is the reason."""


_line = msgspec.json.Decoder(_Line)


class Layers:
    """The layers of a model and how much of each is there. Ollama counts a layer anew at every try; this does not."""

    def __init__(self) -> None:
        self._completed: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def see(self, digest: str, *, completed: int, total: int) -> bool:
        """Take what a line says. True when more is there than before."""
        self._total[digest] = max(total, self._total.get(digest, 0))
        before = self._completed.get(digest, -1)
        self._completed[digest] = max(before, min(completed, self._total[digest]))
        return self._completed[digest] > before

    @property
    def completed(self) -> int:
        """Bytes of all layers that are there; it never falls."""
        return sum(self._completed.values())

    @property
    def total(self) -> int:
        """Bytes of all layers seen so far; it never falls."""
        return sum(self._total.values())


class _Pull:
    """One pull over all its tries."""

    def __init__(self, client: HttpClient, body: bytes, stall_seconds: float, progress: Progress) -> None:
        self._client = client
        self._body = body
        self._stall_seconds = stall_seconds
        self._progress = progress
        self._layers = Layers()
        self._steps: set[str] = set()
        self.advances = 0

    def attempt(self, cancelled: CancelToken) -> None:
        """Ask once and follow to the end. Raises _Broken, or PullFailed where asking again is of no use."""
        try:
            with self._client.lines(PATH, self._body, idle_seconds=self._stall_seconds, cancelled=cancelled) as (
                status,
                lines,
            ):
                advanced_at = time.monotonic()
                for raw in lines:
                    line = _read(raw)
                    if line.error:
                        self._refused(status, line.error)
                    if line.status == "success":
                        return
                    if self._takes(line):
                        advanced_at = time.monotonic()
                    elif time.monotonic() - advanced_at > self._stall_seconds:
                        raise _Broken(f"nothing new came for {self._stall_seconds:g} s")
        except DeadlinePassed:
            raise _Broken(f"nothing came for {self._stall_seconds:g} s") from None
        except HttpError as error:
            raise _Broken(str(error)) from error
        raise _Broken("the answer ended before success")

    def _refused(self, status: int, reason: str) -> None:
        if 400 <= status < 500:  # noqa: PLR2004 - HTTP: the request is wrong, and stays so
            raise PullFailed(reason)
        raise _Broken(reason)

    def _takes(self, line: _Line) -> bool:
        """Take a line. True when it is a step that was not seen before."""
        if not line.digest:
            is_new = line.status not in self._steps
            self._steps.add(line.status)
            return is_new
        is_new = self._layers.see(line.digest, completed=line.completed, total=line.total)
        if is_new:
            self.advances += 1
            self._progress(self._layers.completed, self._layers.total)
        return is_new


def pull_model(
    client: HttpClient,
    model: str,
    *,
    stall_seconds: float,
    pause_seconds: float,
    progress: Progress,
    cancelled: CancelToken,
) -> None:
    """Pull until Ollama says `success`, asking again as long as that brings something.

    Raises PullFailed with the runtime's reason, RowCancelled soon after a cancel (the connection is closed, and with
    it Ollama's download ends).
    """
    pull = _Pull(client, msgspec.json.encode({"model": model, "stream": True}), stall_seconds, progress)
    vain = 0
    while True:
        cancelled.raise_if_cancelled()
        before = pull.advances
        try:
            pull.attempt(cancelled)
        except _Broken as broken:
            vain = 0 if pull.advances > before else vain + 1
            if vain >= _VAIN_TRIES:
                raise PullFailed(str(broken)) from broken
            cancelled.sleep(pause_seconds * 2**vain)
        else:
            return


def _read(raw: bytes) -> _Line:
    try:
        return _line.decode(raw) if raw.strip() else _Line()
    except msgspec.MsgspecError:
        return _Line(error=f"Ollama said something that is no progress: {raw[:200]!r}")
