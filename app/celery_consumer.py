"""A Celery consumer that neither a forged message nor a lost broker can end.

Celery 5.7 checks a message's headers and not its shape: a body of `[]` is an unrecoverable error that ends the worker,
which hands the message back, so that it ends every worker of the pool in turn; an item of the list that is no JSON
ends one worker. Whoever can ring (with a stolen worker's broker account, say) could stop a pool that way.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.utils.dispatch import Signal
from celery.worker import state
from celery.worker.consumer import Consumer

log = logging.getLogger(__name__)

broker_away = Signal(name="broker_away")
"""The consumer looks for its broker: it has lost it, or has just begun."""
broker_back = Signal(name="broker_back")
"""The consumer takes messages."""
no_thread = Signal(name="no_thread")
"""A message came, and no thread can be started for it (`error`)."""

REFUSED_FIRST_SECONDS = 1.0
REFUSED_LONGEST_SECONDS = 30.0
"""Between two tries with an account that may not do what its worker needs: it can connect, so Celery does not wait."""
# What Celery and kombu raise over content, as opposed to the broker's own errors.
CONTENT_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


class SturdyConsumer(Consumer):
    """Drops what it cannot read, with a line in the log."""

    loop: Callable[..., Any]
    connection_errors: tuple[type[BaseException], ...]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.loop = _reconnecting(self.loop)
        self._refused_at = float("-inf")
        self._pause_seconds = 0.0

    def connect(self) -> Any:
        """Celery's own, which goes on until there is a broker."""
        broker_away.send(sender=self)
        return super().connect()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Celery's own, which closes the lost connection; what closing stumbles over must not end the worker.

        With a message on its way kombu asks the lost connection for its host, and finds it gone (AttributeError).
        """
        broker_away.send(sender=self)
        try:
            super().on_connection_error_after_connected(exc)
        except Exception:
            log.warning("the lost connection to the broker could not be closed", exc_info=True)
        if type(exc).__name__ == "NoPermissionError":  # redis-py's; another broker's library need not be there
            self._rest(exc)

    def _rest(self, exc: Exception) -> None:
        """Wait longer from time to time, but for a shutdown."""
        now = time.monotonic()
        is_new = now - self._refused_at > 2 * REFUSED_LONGEST_SECONDS
        self._pause_seconds = REFUSED_FIRST_SECONDS if is_new else min(2 * self._pause_seconds, REFUSED_LONGEST_SECONDS)
        self._refused_at = now
        log.error(
            "the broker refuses its account what this worker needs (%s), tried again in %g s: it is another pool's, "
            "or of an older version; `gpuyard broker acl POOL --apply` makes it anew",
            exc,
            self._pause_seconds,
        )
        while time.monotonic() < now + self._pause_seconds and not _is_to_end():
            time.sleep(0.1)

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        """Celery's handler; a message it stumbles over is rejected for good."""
        handle = super().create_task_handler(*args, **options)

        def handle_or_drop(message: Any) -> Any:
            try:
                return handle(message)
            except CONTENT_ERRORS as error:
                log.warning("message dropped: %s", type(error).__name__)
                message.reject_log_error(log, self.connection_errors)
                return None
            except RuntimeError as error:
                # Of the thread pool. A message is only a bell: one that is dropped is sent again.
                log.warning("message dropped: %s", error)
                message.reject_log_error(log, self.connection_errors)
                no_thread.send(sender=self, error=error)
                return None

        return handle_or_drop


def _is_to_end() -> bool:
    flags: tuple[object, ...] = (state.should_stop, state.should_terminate)
    return any(flag is not None and flag is not False for flag in flags)  # 0 is an exit code


def _reconnecting(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Have `loop` say that it runs, and answer an item that is no message with a new connection.

    Such an item has left its list already.
    """

    def run(*args: Any, **options: Any) -> Any:
        broker_back.send(sender=None)
        try:
            return loop(*args, **options)
        except CONTENT_ERRORS as error:
            log.warning("an item of a queue was no message", exc_info=True)
            raise ConnectionResetError("the queue held what is no message") from error

    return run
