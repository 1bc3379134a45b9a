"""Heartbeats that come while others are being taken wait for those, and are then taken together (PROTOCOL 2).

Nobody waits for company: a beat that comes alone goes at once. Under load a commit carries as many as came during the
one before it, so ten thousand workers cost as many transactions as the database takes, and a waiting beat no thread.
"""

import asyncio
from asyncio import Future
from collections import deque
from contextvars import Context

from app.api.threads import HEARTBEATS
from app.domain.errors import Refusal
from app.schemas.workers import HeartbeatAnswer
from app.services import heartbeats
from app.services.context import Yard
from app.services.heartbeats import Answers, Beat

MOST_BEATS = 200
MOST_LEASES = 5000
"""Of one transaction; a single beat may have more."""


class Beats:
    """Of one API process. Made and used in its event loop."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._waiting: deque[tuple[Beat, Future[HeartbeatAnswer]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def take(self, beat: Beat) -> HeartbeatAnswer:
        """Give a beat's answer, after the commit that holds its renewal. Raises as `heartbeats.heartbeat`."""
        answer: Future[HeartbeatAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, answer))
        if self._task is None:
            # In a context of its own: what is logged for all is not the first one's.
            self._task = asyncio.create_task(self._take_all(), context=Context())
        return await answer

    async def _take_all(self) -> None:
        try:
            while self._waiting:
                group = self._group()
                try:
                    answers = await HEARTBEATS.run(heartbeats.heartbeats, self._yard, [beat for beat, _ in group])
                except Exception as error:  # noqa: BLE001 - it belongs to those who asked
                    await self._one_by_one(group, error)
                else:
                    _hand_out(group, answers)
        finally:
            self._task = None

    def _group(self) -> list[tuple[Beat, Future[HeartbeatAnswer]]]:
        """Take who is next: one beat a worker, a second one of it waits; nobody overtakes."""
        group: list[tuple[Beat, Future[HeartbeatAnswer]]] = []
        workers: set[str] = set()
        leases = 0
        while self._waiting and len(group) < MOST_BEATS:
            beat, _ = self._waiting[0]
            leases += len(beat.said.leases)
            if beat.worker_id in workers or (group and leases > MOST_LEASES):
                break
            workers.add(beat.worker_id)
            group.append(self._waiting.popleft())
        return group

    async def _one_by_one(self, group: list[tuple[Beat, Future[HeartbeatAnswer]]], error: Exception) -> None:
        """Find out whose beat it is that the database did not take; the others' renewals do not suffer for it."""
        for beat, answer in group:
            try:
                if len(group) > 1:
                    _hand_out([(beat, answer)], await HEARTBEATS.run(heartbeats.heartbeats, self._yard, [beat]))
                    continue
            except Exception as its_own:  # noqa: BLE001 - the same
                error = its_own
            if not answer.done():
                answer.set_exception(error)


def _hand_out(group: list[tuple[Beat, Future[HeartbeatAnswer]]], answers: Answers) -> None:
    for beat, answer in group:
        if answer.done():  # who asked went away
            continue
        found = answers[beat.worker_id]
        if isinstance(found, Refusal):
            answer.set_exception(found)
        else:
            answer.set_result(found)
