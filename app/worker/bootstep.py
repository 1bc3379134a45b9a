"""Where Celery's start and the agent meet."""

from typing import Any

from celery import bootsteps

from app.worker import control_commands, current

COMMANDS = (control_commands.gpuyard_stop,)
"""Celery knows a remote command once its module was imported."""


class AgentStep(bootsteps.StartStopStep):
    """Hands the worker to the agent after its consumer was made and before it starts to take messages.

    There is no `stop`: Celery stops steps before its thread pool has drained, and the agent must beat until the end.
    """

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:
        """Attach the agent."""
        current.agent().attach(parent)
