"""The ringer: one thread a process that publishes bells, so that no request ever waits for the broker (DESIGN 7).

The only place of the control side that talks to the broker. Its queue is bounded and what does not fit is dropped: the
requeue sweep rings again. A publish that fails may have rung; a bell that rings twice does no harm.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from celery import Celery
from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerError
from prometheus_client.registry import Collector
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from app.db import dispatch as dispatch_sql
from app.db.store import DatabaseUnavailable
from app.domain import metrics
from app.services import rings
from app.services.context import BatchRing, ControlRing, Yard
from app.services.counters import Counters
from config.broker_url import refusal
from config.celeryconfig import PUBLISHER_SOCKET_SECONDS, own_queue, transport_options
from config.metrics import Family, figure
from config.queues import CONTROL, pool_queue

log = logging.getLogger(__name__)

QUEUE_SIZE = 1000
PING_SECONDS = 10.0
"""So often the broker is asked whether it takes messages."""
REPLIES = "reply.celery.pidbox"
REPLY_SECONDS = 60
"""Unread replies to remote control are kept for so long."""
COMPLAIN_SECONDS = 60
STOP_COMMAND = "gpuyard_stop"
CALL_COMMAND = "gpuyard_call"
_BROKER_AWAY = (BrokerError, KombuError, RedisError, OSError)
_AWAY = (*_BROKER_AWAY, SQLAlchemyError, DatabaseUnavailable)


def publisher(broker_url: str) -> Celery:
    """Make a Celery app that only publishes. Its waits are bounded: a frozen broker holds one thread, briefly."""
    app = Celery("gpuyard-ringer", set_as_current=False)
    app.config_from_object("config.celeryconfig")
    options = transport_options("gpuyard-ringer", socket_seconds=PUBLISHER_SOCKET_SECONDS)
    app.conf.update(broker_url=broker_url, broker_transport_options=options)
    return app


@dataclass(frozen=True, slots=True)
class _Bell:
    ring: Callable[[Yard, str, float], None]
    batch_id: str
    """Or the name of a pool."""
    quiet_seconds: float


class Ringer(Collector):
    """Implements app.services.context.Bells over a Celery app of an entry point; knows how the broker is."""

    heard = True

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._bells: queue.Queue[_Bell | None] = queue.Queue(QUEUE_SIZE)
        self._thread: threading.Thread | None = None
        self._complained_at = float("-inf")
        self._counters: Counters | None = None
        self._heard_at = time.monotonic()
        self._is_up = False
        self._trouble: str | None = None
        self._closed = False

    def start(self, yard: Yard) -> Yard:
        """Begin to ring for `yard`; gives the yard whose use cases ring here."""
        ringing = replace(yard, bells=self)
        self._counters = yard.counters
        yard.counters.registry.register(self)
        self._thread = threading.Thread(target=self._run, args=(ringing,), name="ringer", daemon=True)
        self._thread.start()
        return ringing

    @property
    def trouble(self) -> str | None:
        """What keeps messages from being published, without words of the driver, which name hosts."""
        return self._trouble

    def close(self, timeout: float = 2.0) -> None:
        """Publish what waits, for at most about `timeout` seconds; what is left then is never rung."""
        with suppress(queue.Full):
            self._bells.put(None, timeout=timeout)
        if self._thread is not None:
            self._thread.join(timeout)
        self._closed = True

    def batch(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Ring a pool for a batch."""
        self._put(_Bell(self._ring_batch, batch_id, quiet_seconds))

    def control(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Ring the control workers for a batch."""
        self._put(_Bell(self._ring_control, batch_id, quiet_seconds))

    def stop(self, batch_id: str) -> None:
        """Ring the workers that hold leases of a batch which is to stop."""
        self._put(_Bell(self._ring_stop, batch_id, 0))

    def call(self, pool: str) -> None:
        """Ring the workers of a pool, to have them call."""
        self._put(_Bell(self._ring_call, pool, 0))

    def publish(self, ring: BatchRing | ControlRing) -> None:
        """Publish what a committed transaction has noted."""
        self._put(_Bell(lambda _yard, _batch_id, _quiet: self._publish(ring), ring.batch_id, 0))

    def _put(self, bell: _Bell) -> None:
        try:
            self._bells.put_nowait(bell)
        except queue.Full:
            self._count("dropped")
            self._complain("more bells than the broker takes; the requeue sweep rings again")

    def _run(self, yard: Yard) -> None:
        ping_at = 0.0
        while not self._closed:
            if time.monotonic() >= ping_at:
                self._ping()
                ping_at = time.monotonic() + PING_SECONDS
            try:
                bell = self._bells.get(timeout=max(0.0, ping_at - time.monotonic()))
            except queue.Empty:
                continue
            if bell is None:
                return
            try:
                bell.ring(yard, bell.batch_id, bell.quiet_seconds)
            except _AWAY as error:
                self._count("failed")
                if isinstance(error, _BROKER_AWAY):
                    self._note_trouble(error)
                self._complain(f"{type(error).__name__}: {error}")
            except Exception:
                # Whatever it was: without this thread no bell of this process is ever heard again.
                log.exception("a bell of %s could not be rung", bell.batch_id)

    def _ring_batch(self, yard: Yard, batch_id: str, quiet_seconds: float) -> None:
        ring = rings.ring_batch(yard, batch_id, quiet_seconds=quiet_seconds)
        if ring is not None:
            self._publish(ring)

    def _ring_control(self, yard: Yard, batch_id: str, quiet_seconds: float) -> None:
        for ring in rings.ring_control(yard, batch_id, quiet_seconds=quiet_seconds):
            self._publish(ring)

    def _publish(self, ring: BatchRing | ControlRing) -> None:
        if isinstance(ring, ControlRing):
            name = f"{ring.batch_id}:job{ring.job_id}:{ring.ring_no}"
            self._send("run_control", f"job_{ring.job_id}", CONTROL, name)
            return
        for number in range(ring.times):
            name = f"{ring.batch_id}:{ring.ring_no}.{number}"
            self._send("run_batch", ring.batch_id, pool_queue(ring.pool), name)

    def _ring_stop(self, yard: Yard, batch_id: str, _quiet_seconds: float) -> None:
        with yard.store.read() as session:
            nodes = list(dispatch_sql.nodes_of_batch(session, batch_id))
        self._broadcast(STOP_COMMAND, {"batch_id": batch_id}, nodes)

    def _ring_call(self, yard: Yard, pool: str, _quiet_seconds: float) -> None:
        with yard.store.read() as session:
            nodes = list(dispatch_sql.nodes_of_pool(session, pool))
        self._broadcast(CALL_COMMAND, {}, nodes)

    def _broadcast(self, command: str, arguments: Mapping[str, str], nodes: Sequence[str]) -> None:
        if not nodes:
            return
        for attempt in (1, 2):
            # A pooled connection that died with the broker fails once and is then replaced.
            try:
                self._celery.control.broadcast(command, arguments=arguments, destination=nodes, reply=False)
            except RedisError:
                if attempt > 1:
                    raise
            else:
                return

    def _send(self, task: str, argument: str, to: str, task_id: str) -> None:
        self._celery.send_task(task, args=[argument], queue=to, task_id=task_id, retry=False, ignore_result=True)
        self._count("rung")
        self._heard()

    def _ping(self) -> None:
        try:
            with self._celery.connection_for_write() as connection:
                channel = connection.channel()  # Redis is asked for its PONG when a channel is opened
                own_queue(CONTROL)(channel).declare()  # a write, which one that is full refuses
                if connection.transport.driver_type == "redis":
                    _end_lost_replies(channel)
        except Exception as error:  # noqa: BLE001 - as above: it may be more than a broker that is away
            self._note_trouble(error)
            self._complain(f"{type(error).__name__}: {error}")
        else:
            self._heard()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self._is_up, self._trouble = True, None

    def _note_trouble(self, error: Exception) -> None:
        why = refusal(error)
        self._is_up = False
        self._trouble = (
            "the API's broker cannot be used; see whether it runs, and what the API's log says of it"
            if why is None
            else f"the API's broker takes no messages, for {why[0]}; {why[1]}"
        )

    def _count(self, outcome: str) -> None:
        if self._counters is not None:
            self._counters.bells.labels(outcome).inc()

    def collect(self) -> Iterator[Family]:
        """Show the broker as this process knows it."""
        yield figure(metrics.BROKER_UP, float(self._is_up))
        yield figure(metrics.BROKER_SILENCE, time.monotonic() - self._heard_at)

    def _complain(self, what: str) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.warning("bells are not heard: %s", what)


def _end_lost_replies(channel: Any) -> None:
    """Have replies to remote control expire that nobody reads: a `celery inspect` was killed while it waited.

    What replies gives the list no time to live, for only the queue of the one that asked has any.
    """
    with channel.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
        for *_, reply_queue in channel.get_table(REPLIES):
            pipe.pexpire(reply_queue, REPLY_SECONDS * 1000, nx=True)
        pipe.execute(raise_on_error=False)  # before 7.0 Redis knows no NX
