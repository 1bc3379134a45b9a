"""Where Celery's start and the control agent meet."""

from typing import Any

from celery import bootsteps

from app.control import current
from app.control.opening import open_agent
from config.collector import spare_what_is_imported


class ControlStep(bootsteps.StartStopStep):
    """Opens the yard and starts the agent with the worker, and stops both with it."""

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:  # noqa: ARG002 - Celery's signature
        """Start the agent; a schema of another version ends the process with the command that mends it."""
        agent = current.install(open_agent())
        spare_what_is_imported()
        agent.start()

    def stop(self, parent: Any) -> None:  # noqa: ARG002 - Celery's signature
        """Stop it: what it did not finish goes to the next holder of the lease."""
        current.agent().stop()
