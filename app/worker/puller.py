"""Fetches the models that shards wait for: one at a time for each runtime, once for all who need it (B-28).

A pull lives as long as somebody waits for it. Its threads are its own: a heartbeat, a claim and a row never wait here.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from app.domain.pulls import Pull, PullStatus
from app.worker.clock import Clock
from app.worker.fetching import fetch, fetcher
from app.worker.places import Place
from app.worker.runtimes import RuntimeGone, Runtimes
from app.worker.setting_up import CannotStartError
from executors.base import PullFailed
from executors.cancellation import CancelToken, RowCancelled

FAILED_SECONDS = 10.0
"""So long a failure stands for everybody who asks again: the shards of a batch must not try one after the other."""
log = structlog.get_logger("gpuyard.worker")


class PullEnd(NamedTuple):
    """What came of a pull. Neither there nor gone: it failed, for `reason`. `too_large`: for this machine."""

    there: bool
    runtime_gone: bool = False
    reason: str = ""
    too_large: bool = False


class TooLargeError(PullFailed):
    """The model has no room on this machine."""


Lacking = Callable[[str | None, int, int], str | None]
"""Says why a model does not fit the machine of a runtime: its URL, the model's bytes, and those that are to come."""


Then = Callable[[PullEnd], None]


@dataclass(eq=False)
class _Fetch:
    number: int
    place: Place
    model: str
    endpoint: str
    waiting: dict[Hashable, Then] = field(default_factory=dict)
    token: CancelToken = field(default_factory=CancelToken)
    completed: int = 0
    total: int = 0


class Puller:
    """Thread-safe. `report` is told of each pull's begin, progress and end; `on_change` when pulling begins or ends."""

    def __init__(
        self,
        runtimes: Runtimes,
        clock: Clock,
        *,
        report: Callable[[Pull], None],
        on_change: Callable[[], None],
        lacking: Lacking = lambda _url, _size, _missing: None,
    ) -> None:
        self._runtimes = runtimes
        self._clock = clock
        self._report = report
        self._on_change = on_change
        self._lacking = lacking
        self._lock = threading.Lock()
        self._numbers = 0
        self._queues: dict[Place, deque[_Fetch]] = {}
        self._failed: dict[tuple[Place, str], tuple[float, str]] = {}
        self._closed = False

    @property
    def is_active(self) -> bool:
        """Whether some model is being fetched."""
        return bool(self._queues)

    def need(self, model: str, endpoint: str, who: Hashable, then: Then) -> bool:
        """Have `model` fetched and call `then` once, from another thread, unless `who` is forgotten before.

        False, and `then` is never called: some runtime has it, or none here fetches models. Raises CannotStartError.
        """
        place = fetcher(self._runtimes, model, endpoint)
        if place is None:
            return False
        with self._lock:
            if self._closed:
                return False
            until, reason = self._failed.get((place, model), (0.0, ""))
            if self._clock() < until:
                end = PullEnd(there=False, reason=reason)
                _start(threading.Thread(target=then, args=(end,), name="gpuyard-pull-failed", daemon=True))
                return True
            self._fetch(place, model, endpoint).waiting[who] = then
        return True

    def forget(self, who: Hashable) -> None:
        """Nobody waits under this name any more; a pull that nobody waits for is cut."""
        with self._lock:
            for one in (one for queue in self._queues.values() for one in queue):
                if one.waiting.pop(who, None) is not None and not one.waiting:
                    one.token.cancel()

    def close(self) -> None:
        """Cut every pull."""
        with self._lock:
            self._closed = True
            for queue in self._queues.values():
                for one in queue:
                    one.waiting.clear()
                    one.token.cancel()

    def _fetch(self, place: Place, model: str, endpoint: str) -> _Fetch:
        queue = self._queues.get(place)
        # One that was cut is about to end; who comes now begins anew.
        for known in queue or ():
            if known.model == model and not known.token.is_cancelled:
                return known
        self._numbers += 1
        made = _Fetch(self._numbers, place, model, endpoint)
        if queue is not None:
            queue.append(made)
        else:
            self._queues[place] = deque([made])
            try:
                _start(threading.Thread(target=self._run, args=(place,), name="gpuyard-pull", daemon=True))
            except CannotStartError:
                del self._queues[place]
                raise
        return made

    def _remember(self, place: Place, model: str, reason: str) -> None:
        now = self._clock()
        self._failed = {key: known for key, known in self._failed.items() if known[0] > now}
        self._failed[place, model] = (now + FAILED_SECONDS, reason)

    # --- the thread of one runtime

    def _run(self, place: Place) -> None:
        self._tell(self._on_change)
        current: _Fetch | None = self._queues[place][0]
        while current is not None:
            end = self._pull(current)
            with self._lock:
                queue = self._queues[place]
                queue.popleft()
                if end.reason and not end.runtime_gone:
                    self._remember(place, current.model, end.reason)
                waiting, current.waiting = list(current.waiting.values()), {}
                if not queue:
                    del self._queues[place]
                current = queue[0] if queue else None
            for then in waiting:
                self._tell(partial(then, end))
        self._tell(self._on_change)

    def _tell(self, somebody: Callable[[], None]) -> None:
        """Tell somebody, whose trouble is not that of those who wait for this runtime's next pulls."""
        try:
            somebody()
        except Exception:
            log.exception("model.pull_not_told")

    def _pull(self, one: _Fetch) -> PullEnd:
        if one.token.is_cancelled:  # nobody needs it any more, and nobody was told of it
            return PullEnd(there=False)
        if fetcher(self._runtimes, one.model, one.endpoint) is None:  # it came under another name, or went down
            return PullEnd(there=True)

        def progress(completed: int, total: int) -> None:
            is_larger = total > one.total
            one.completed, one.total = max(one.completed, completed), max(one.total, total)
            if is_larger and (why := self._lacking(one.place.executor.url, one.total, one.total - one.completed)):
                raise TooLargeError(f"it does not fit this worker: {why}")
            self._say(one, PullStatus.PULLING)

        log.info("model.pulling", model=one.model, runtime=one.place.executor.name)
        self._say(one, PullStatus.PULLING)
        try:
            fetch(self._runtimes, one.place, one.model, progress=progress, cancelled=one.token)
        except RowCancelled:
            end, status = PullEnd(there=False), PullStatus.CANCELLED
        except RuntimeGone as error:
            end, status = PullEnd(there=False, runtime_gone=True, reason=str(error)), PullStatus.FAILED
        except PullFailed as error:
            is_too_large = isinstance(error, TooLargeError)
            end = PullEnd(there=False, reason=str(error) or "it does not say why", too_large=is_too_large)
            status = PullStatus.FAILED
        except Exception as error:  # a third party's executor
            log.exception("model.pull_broke", model=one.model)
            end, status = PullEnd(there=False, reason=f"{type(error).__name__}: {error}"), PullStatus.FAILED
        else:
            end, status = PullEnd(there=True), PullStatus.PULLED
        log.info("model.pull_ended", model=one.model, status=status, reason=end.reason or None)
        self._say(one, status, end.reason)
        return end

    def _say(self, one: _Fetch, status: PullStatus, error: str = "") -> None:
        self._report(
            Pull(
                number=one.number,
                runtime=one.place.executor.name,
                model=one.model,
                status=status,
                completed=one.completed,
                total=one.total,
                error=error,
            )
        )


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:
        raise CannotStartError(str(error)) from error
