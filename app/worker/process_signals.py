"""The signals that ask a worker to leave. Without Celery, for the worker that has none (DR-01)."""

import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def handle_signals(on_signal: Callable[[], None]) -> None:
    """Have each signal that asks a process to end call `on_signal`, in the main thread and wherever that is."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        on_signal()

    for number in SIGNALS:
        signal.signal(number, handle)
