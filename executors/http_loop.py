"""One thread that looks after every exchange of a client that nobody waits for.

A thread that waits for one answer gives the interpreter away and takes it back several times a row; with many rows in
flight, which end together, that costs more than all else they need. Here they are begun, and one thread reads them all.
"""

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from executors.cancellation import CancelToken
from executors.http_connection import Connection
from executors.http_wire import Answer, DeadlinePassed

LOOK_SECONDS = 0.1
"""How much later than its deadline an exchange may be given up."""
log = logging.getLogger(__name__)

Outcome = Answer | Callable[[], Answer]
"""An answer, or what waits for it and gives it or raises as `HttpClient.post` does."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on a kept connection. `watch` is what the token gave for watching it; `ended` is to be told once."""

    connection: Connection
    head: bytes
    body: bytes
    deadline: float
    cancelled: CancelToken
    watch: object
    ended: Callable[[Outcome], None]


class ExchangeLoop:
    """Needs epoll. `on_end` is called in the loop's thread with what came of an exchange; it must not wait."""

    def __init__(self, on_end: Callable[[Exchange, Answer | Exception], None]) -> None:
        self._on_end = on_end
        self._lock = threading.Lock()
        self._underway: dict[int, Exchange] = {}
        self._closed = False
        self._bell = -1
        self._overdue_at = 0.0
        self._thread: threading.Thread | None = None

    def add(self, exchange: Exchange) -> bool:
        """Send its request and look after it. False: the loop is closed, and nothing was sent."""
        number = exchange.connection.fileno()
        with self._lock:
            if self._closed:
                return False
            if self._thread is None:
                self._open()
            if not self._underway and threading.current_thread() is not self._thread:
                os.eventfd_write(self._bell, 1)  # it sleeps without a thought of deadlines
            self._underway[number] = exchange
        exchange.connection.begin(exchange.head + exchange.body)
        self._watch(number, exchange.connection)
        return True

    def close(self) -> None:
        """End once the last exchange has; its owner cuts their connections."""
        with self._lock:
            self._closed = True
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _open(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="http-answers", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # without it no answer would be heard: the next row tries anew
            self._thread = None
            self._epoll.close()
            os.close(self._bell)
            self._bell = -1
            raise

    def _watch(self, number: int, connection: Connection) -> None:
        # Once: a kept connection that rests is nobody's business here.
        events = select.EPOLLIN | select.EPOLLONESHOT | (select.EPOLLOUT if connection.has_unsent else 0)
        if connection.is_watched:
            self._epoll.modify(number, events)
        else:
            connection.is_watched = True
            self._epoll.register(number, events)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed and not self._underway:
                    self._epoll.close()
                    os.close(self._bell)
                    self._bell = -1
                    return
                seconds = LOOK_SECONDS if self._underway else -1
            for number, _ in self._epoll.poll(seconds):
                if number == self._bell:
                    os.eventfd_read(self._bell)
                elif (exchange := self._underway.get(number)) is not None:
                    self._look_at(number, exchange)
            self._give_up_overdue()

    def _look_at(self, number: int, exchange: Exchange) -> None:
        try:
            came: Answer | Exception | None = exchange.connection.go_on(exchange.deadline)
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer is told
            came = error
        if came is None:
            self._watch(number, exchange.connection)
        else:
            self._end(number, exchange, came)

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        if now < self._overdue_at:
            return
        self._overdue_at = now + LOOK_SECONDS
        for number, exchange in list(self._underway.items()):
            if exchange.deadline <= now:
                self._end(number, exchange, DeadlinePassed("the answer was not complete in time"))

    def _end(self, number: int, exchange: Exchange, came: Answer | Exception) -> None:
        del self._underway[number]  # first: its connection may be used again at once
        try:
            self._on_end(exchange, came)
        except Exception:
            log.exception("the end of an exchange could not be told")
