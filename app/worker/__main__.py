"""`python -m app.worker`: a worker without a broker, which hears of work by polls (A-03). No Celery is loaded.

`gpuyard worker --transport http` starts it. SIGTERM, SIGINT and SIGQUIT drain, a second one hurries; exit codes are
those of a Celery worker: 0 when it left in good order, 1 when it was refused, 75 when something in it hung.
"""

import sys

from app.interrupts import ends_at_once

with ends_at_once():
    from app.domain.workers import Transport
    from app.worker.agent import Agent
    from app.worker.process_signals import handle_signals
    from app.worker.watchdog import EXIT_SECONDS, watchdog
    from config.collector import spare_what_is_imported
    from config.errors import SettingsError
    from config.logging import configure
    from config.settings import WorkerSettings, load

LOOK_SECONDS = 1.0
"""A signal that comes in the moment in which the wait for the end begins is seen by Python when that wait is over."""


def main() -> int:
    """Work until told to leave; gives the exit code."""
    try:
        settings = load(WorkerSettings)
    except SettingsError as error:
        sys.stderr.write(f"gpuyard: {error}\n")
        return 1
    configure("worker", level=settings.log_level, as_json=settings.log_json)
    agent = Agent(settings, transport=Transport.HTTP, on_exit=lambda code: watchdog(EXIT_SECONDS, code), watch=watchdog)
    handle_signals(agent.on_signal)
    spare_what_is_imported()
    agent.start()
    while not agent.join(LOOK_SECONDS):
        pass
    return agent.exit_code


if __name__ == "__main__":
    with ends_at_once():  # until it handles signals
        sys.exit(main())
