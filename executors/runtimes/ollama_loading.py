"""Having a model loaded before a row's time begins.

Ollama loads a model when the first request for it comes, and that takes from seconds to minutes. Nothing it tells
says whether a model is still loading: `/api/ps` lists it from the start. A request without content is answered when
the model is loaded, so one is sent before a row whose model may not be there; all rows for that model wait for it.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

import msgspec

from executors.cancellation import CancelToken
from executors.http_wire import Answer
from executors.runtimes.ollama_body import Reload

_STAYS_SECONDS = 60.0
"""A model that gave an answer within this time, and no other since, is still loaded: Ollama keeps it 5 minutes."""

_LOOK_SECONDS = 0.1
_CANNOT_LOAD = frozenset({404, 429, 500, 502, 503, 504})
Send = Callable[[str, bytes, CancelToken], Answer]


class NotLoaded(Exception):
    """Loading a model took longer than is allowed."""


class Wanted(NamedTuple):
    """A model as rows want it loaded. `path` and `empty` make the request that has nothing to work on."""

    path: str
    empty: tuple[str, Hashable]
    model: str
    reload: Reload

    def request(self) -> bytes:
        """Write the request that is answered when the model is loaded."""
        name, nothing = self.empty
        fields: dict[str, object] = {"model": self.model, name: nothing, "stream": False}
        if self.reload:
            fields["options"] = {option: msgspec.Raw(value) for option, value in self.reload}
        return msgspec.json.encode(fields)


class _Load:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.refused: Answer | None = None


class Loads:
    """What is loaded, as far as this worker's own rows tell, and the loads that are under way."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._under_way: dict[Wanted, _Load] = {}
        self._last: Wanted | None = None
        self._last_at = 0.0

    def answered(self, wanted: Wanted) -> None:
        """A row for this model was answered."""
        self._last, self._last_at = wanted, time.monotonic()

    def forget(self) -> None:
        """The runtime went away: what it had loaded is gone."""
        self._last = None

    def ensure(self, wanted: Wanted, cancelled: CancelToken) -> Answer | None:
        """Return once the model is loaded, or give the runtime's answer when it refuses to load it.

        Raises what `send` raises, and RowCancelled soon after a cancel.
        """
        while not self._is_loaded(wanted):
            with self._lock:
                load = self._under_way.get(wanted)
                mine = load is None
                if load is None:
                    load = self._under_way[wanted] = _Load()
            if mine:
                return self._load(wanted, load, cancelled)
            while not load.ended.wait(_LOOK_SECONDS):
                cancelled.raise_if_cancelled()
            if load.refused is not None:
                return load.refused
        return None

    def _is_loaded(self, wanted: Wanted) -> bool:
        return self._last == wanted and time.monotonic() - self._last_at < _STAYS_SECONDS

    def _load(self, wanted: Wanted, load: _Load, cancelled: CancelToken) -> Answer | None:
        try:
            answer = self._send(wanted.path, wanted.request(), cancelled)
            if answer.status in _CANNOT_LOAD:
                load.refused = answer
            else:  # loaded; or it takes no empty request, and the row itself has to tell
                self.answered(wanted)
            return load.refused
        finally:
            with self._lock:
                del self._under_way[wanted]
            load.ended.set()
