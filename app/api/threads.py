"""Threads of an API process, by the kind of call that runs in them: a burst of one kind leaves the others theirs.

Each thread uses one connection to the database at a time, and the pool has one for each of them (`CONNECTIONS`), so no
kind of call waits for connections of another either. User calls get few: threads that compute take the interpreter in
turns, and a heartbeat, which needs about thirty turns, waits for all of them each time.

What reads or writes contents has threads of its own: when the store hangs, they hang with it, and no other call does.

Calls that wait for a thread of a kind wait by their org: a thread that is free goes to the org that has the fewest.
"""

import asyncio
from asyncio import Future
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

P = ParamSpec("P")
T = TypeVar("T")


ORG: ContextVar[str] = ContextVar("the id of the org that calls", default="")
"""Set when a call's key is known; what calls do before, and what no call does, waits together."""


class Turns:
    """Threads of one kind, in one event loop: which org gets the next one.

    Of more than two the last free one is for an org that has none: it waits for no call of another.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._kept = 1 if count > 2 else 0  # noqa: PLR2004 - above
        self._of_org: Counter[str] = Counter()
        self._waiting: dict[str, deque[Future[None]]] = {}

    async def take(self, org_id: str) -> None:
        """Wait for a thread. The caller gives it back."""
        if self._may(org_id):
            self._grant(org_id)
            return
        turn: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(org_id, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # its turn came while it was cancelled
                self.give_back(org_id)
            raise

    def give_back(self, org_id: str) -> None:
        """Hand a thread on: to the org that has the fewest, and of several to the one that waits longest for one."""
        self._free += 1
        self._of_org[org_id] -= 1
        if not self._of_org[org_id]:
            del self._of_org[org_id]
        while self._waiting and self._may(org_id := min(self._waiting, key=self._of_org.__getitem__)):
            waiting = self._waiting.pop(org_id)
            turn = waiting.popleft()
            if waiting:
                self._waiting[org_id] = waiting  # behind the others
            if not turn.done():
                self._grant(org_id)
                turn.set_result(None)

    def _may(self, org_id: str) -> bool:
        return self._free > (self._kept if self._of_org[org_id] else 0)

    def _grant(self, org_id: str) -> None:
        self._free -= 1
        self._of_org[org_id] += 1


class Threads:
    """At most `count` threads at a time in an event loop; calls beyond that wait, each org's in order."""

    def __init__(self, name: str, count: int) -> None:
        self.count = count
        self._limiter: RunVar[CapacityLimiter] = RunVar(f"{name} threads")
        self._turns: RunVar[Turns] = RunVar(f"turns of {name} threads")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread."""
        org_id, turns = ORG.get(), _of_loop(self._turns, lambda: Turns(self.count))
        await turns.take(org_id)
        try:
            limiter = _of_loop(self._limiter, lambda: CapacityLimiter(self.count))
            return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=limiter)
        finally:
            turns.give_back(org_id)

    async def each(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield pieces of a body, none of them empty, each made in a thread."""
        while piece := await self.run(next, pieces, b""):
            yield piece

    def share_with_starlette(self) -> None:
        """Have what Starlette runs in threads by itself run in these. Called in the event loop, before any call."""
        limiter = to_thread.current_default_thread_limiter()
        limiter.total_tokens = self.count
        self._limiter.set(limiter)


def _of_loop(found: RunVar[T], make: Callable[[], T]) -> T:
    try:
        return found.get()
    except LookupError:
        made = make()
        found.set(made)
        return made


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
LARGE_BODIES = Threads("large bodies", 1)
"""What parses them: it keeps the interpreter to itself meanwhile. Uses no connection."""
DUTIES = 5
"""Threads that are not started by calls (app.api.duties)."""
_OF_CALLS = (USERS, WORKERS, HEARTBEATS, READINESS, CONTENTS, RETRIES, WORKER_CONTENTS)
CONNECTIONS = DUTIES + sum(threads.count for threads in _OF_CALLS)
