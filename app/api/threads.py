"""Threads of an API process, by the kind of call that runs in them: a burst of one kind leaves the others theirs.

Each thread uses one connection to the database at a time, and the pool has one for each of them (`CONNECTIONS`), so no
kind of call waits for connections of another either. User calls get few: threads that compute take the interpreter in
turns, and a heartbeat, which needs about thirty turns, waits for all of them each time.

What reads or writes contents has threads of its own: when the store hangs, they hang with it, and no other call does.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most `count` threads at a time in an event loop; calls beyond that wait in order."""

    def __init__(self, name: str, count: int) -> None:
        self.count = count
        self._limiter: RunVar[CapacityLimiter] = RunVar(f"{name} threads")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread."""
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._limit())

    async def each(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield pieces of a body, none of them empty, each made in a thread."""
        while piece := await self.run(next, pieces, b""):
            yield piece

    def share_with_starlette(self) -> None:
        """Have what Starlette runs in threads by itself run in these. Called in the event loop, before any call."""
        limiter = to_thread.current_default_thread_limiter()
        limiter.total_tokens = self.count
        self._limiter.set(limiter)

    def _limit(self) -> CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self.count)
            self._limiter.set(limiter)
            return limiter


USERS = Threads("user", 8)
WORKERS = Threads("worker", 12)
HEARTBEATS = Threads("heartbeat", 4)
READINESS = Threads("readiness", 1)
CONTENTS = Threads("contents", 8)
"""Uploads and downloads of users."""
RETRIES = Threads("retry", 2)
"""Each reads and writes whole files, for as long as they are large."""
WORKER_CONTENTS = Threads("workers' contents", 8)
"""Hand-ins, and the input that workers fetch, that a claim's answer brings or that a report calls damaged."""
DUTIES = 5
"""Threads that are not started by calls (app.api.duties)."""
_OF_CALLS = (USERS, WORKERS, HEARTBEATS, READINESS, CONTENTS, RETRIES, WORKER_CONTENTS)
CONNECTIONS = DUTIES + sum(threads.count for threads in _OF_CALLS)
