"""The last resort: a process that should have ended and has not."""

import os
import sys
import threading

import structlog

EXIT_SECONDS = 10.0
"""So long a process may try to end; one whose broker is frozen, or with a thread that hangs, does not (DESIGN 9)."""

log = structlog.get_logger("gpuyard.worker")


def watchdog(seconds: float, exit_code: int) -> None:
    """End this process in `seconds`, whatever hangs in it."""

    def end() -> None:
        log.error("worker.hangs", after_seconds=seconds)
        sys.stderr.flush()
        os._exit(exit_code)

    timer = threading.Timer(seconds, end)
    timer.name = "gpuyard-watchdog"
    timer.daemon = True
    timer.start()
