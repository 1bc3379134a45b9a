"""The last resort: a process that should have ended and has not."""

import os
import sys
import threading

import structlog

EXIT_SECONDS = 10.0
"""So long a process may try to end; one whose broker is frozen, or with a thread that hangs, does not (DESIGN 9)."""
SAY_SECONDS = 1.0
"""So long it tries to say so: whoever reads its log may be what hangs."""

log = structlog.get_logger("gpuyard.worker")


def watchdog(seconds: float, exit_code: int) -> None:
    """End this process in `seconds`, whatever hangs in it."""

    def say() -> None:
        log.error("worker.hangs", after_seconds=seconds)
        sys.stderr.flush()

    def end() -> None:
        try:
            saying = threading.Thread(target=say, name="gpuyard-watchdog-says", daemon=True)
            saying.start()
            saying.join(SAY_SECONDS)
        finally:  # perhaps no thread can be started
            os._exit(exit_code)

    timer = threading.Timer(seconds, end)
    timer.name = "gpuyard-watchdog"
    timer.daemon = True
    timer.start()
