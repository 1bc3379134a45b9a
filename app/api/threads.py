"""Threads of an API process, by the kind of call that runs in them: a burst of one kind leaves the others theirs.

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

    def _limit(self) -> CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self.count)
            self._limiter.set(limiter)
            return limiter


CONTENTS = Threads("contents", 8)
"""Uploads and downloads, also the downloads of workers."""
WORKER_CONTENTS = Threads("workers' contents", 8)
"""Hand-ins, and the rows that a claim's answer brings."""
