"""Signals and the end of the process. Celery's own handlers know nothing of leases, so ours replace them."""

from collections.abc import Callable

from celery import signals as celery_signals
from celery.worker import state as celery_state

from app.worker.process_signals import handle_signals
from app.worker.watchdog import EXIT_SECONDS, watchdog


def take_over(on_signal: Callable[[], None], on_shutdown: Callable[[], None]) -> None:
    """Have SIGTERM, SIGINT and SIGQUIT call `on_signal`, from now on and again once Celery has set up its own handlers.

    Called before there is an agent that may hold leases. `on_shutdown` is called when Celery ends for a reason of its
    own (a remote `shutdown`), after its threads are idle and before the process ends; it may take its time.
    """

    def install(**_: object) -> None:
        handle_signals(on_signal)

    def call(**_: object) -> None:
        on_signal()

    def end(**_: object) -> None:
        on_shutdown()

    install()
    celery_signals.worker_ready.connect(install, weak=False, dispatch_uid="gpuyard-signals")
    celery_signals.worker_shutting_down.connect(call, weak=False, dispatch_uid="gpuyard-shutting-down")
    celery_signals.worker_shutdown.connect(end, weak=False, dispatch_uid="gpuyard-shutdown")


def end_celery(exit_code: int) -> None:
    """Ask Celery to end with `exit_code`, and see to it that the process does."""
    celery_state.should_stop = exit_code  # type: ignore[assignment]  # None, False or an exit code
    watchdog(EXIT_SECONDS, exit_code)
