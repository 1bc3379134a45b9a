"""The Celery consumer of the pool's queue, open only while a message could be of use (PROTOCOL 6, DESIGN 9).

A message that nobody can act on is better left in Redis for another worker of the pool.
"""

import threading
from typing import Any


class Door:
    """Opens and closes consuming from one queue, from any thread."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._worker: Any = None
        self._is_open = False

    def attach(self, celery_worker: Any) -> None:
        """Take a Celery worker over whose consumer has not started: it starts with the queue as the door stands."""
        with self._lock:
            self._worker = celery_worker
            if not self._is_open:
                celery_worker.app.amqp.queues.deselect(self._queue)

    def set(self, *, is_open: bool) -> None:
        """Bring the door to where it should be. Without a Celery worker it only remembers."""
        with self._lock:
            if is_open == self._is_open:
                return
            self._is_open = is_open
        self.settle()

    def settle(self) -> None:
        """See to it that the queue is as the door stands, also after a connection that was lost with a move on its way.

        In the consumer's own thread, which is the only one that may touch its channel, and by what is wanted *then*:
        what was called soon waits in a set and runs in any order, so that an opening may come before the closing that
        was asked for first.
        """
        worker = self._worker
        if worker is not None:
            worker.consumer.call_soon(self._settle, worker.consumer)

    def _settle(self, consumer: Any) -> None:
        if consumer.task_consumer is None:
            return  # a worker that stops without ever having met its broker still runs what was called soon
        with self._lock:
            is_open = self._is_open
        if is_open:
            consumer.add_task_queue(self._queue)
        elif consumer.task_consumer.consuming_from(self._queue):
            consumer.cancel_task_queue(self._queue)
