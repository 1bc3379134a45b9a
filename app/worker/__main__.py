"""`python -m app.worker`: a worker without a broker, which hears of work by polls (A-03). No Celery is loaded.

`gpuyard worker --transport http` starts it. SIGTERM, SIGINT and SIGQUIT drain, a second one hurries; exit codes are
those of a Celery worker: 0 when it left in good order, 1 when it was refused, 75 when something in it hung.
"""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from app.domain.workers import Transport
from app.worker.agent import Agent
from app.worker.watchdog import EXIT_SECONDS, watchdog
from config.logging import configure
from config.settings import WorkerSettings, load
from config.sources import SettingsError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def main() -> int:
    """Work until told to leave; gives the exit code."""
    try:
        settings = load(WorkerSettings)
    except SettingsError as error:
        sys.stderr.write(f"gpuyard: {error}\n")
        return 1
    configure("worker", level=settings.log_level, as_json=settings.log_json)
    agent = Agent(settings, transport=Transport.HTTP, on_exit=lambda code: watchdog(EXIT_SECONDS, code), watch=watchdog)
    _handle(_leave_at_once)
    agent.start()
    _handle(lambda: threading.Thread(target=agent.on_signal, name="gpuyard-signal", daemon=True).start())
    agent.join()
    return agent.exit_code


def _handle(what: Callable[[], None]) -> None:
    def handle(_number: int, _frame: FrameType | None) -> None:
        what()

    for number in SIGNALS:
        signal.signal(number, handle)


def _leave_at_once() -> None:
    """Before it is ready it holds nothing, and an hour of hello would not end."""
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
