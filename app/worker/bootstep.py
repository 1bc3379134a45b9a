"""Where Celery's start and the agent meet."""

from collections.abc import Callable
from typing import Any

from celery import bootsteps

from app import celery_consumer
from app.worker import control_commands, current, signals
from config.collector import spare_what_is_imported

COMMANDS = (control_commands.gpuyard_stop,)
"""Celery knows a remote command once its module was imported."""


class AgentStep(bootsteps.StartStopStep):
    """Hands the worker to the agent after its consumer was made and before it starts to take messages.

    There is no `stop`: Celery stops steps before its thread pool has drained, and the agent must beat until the end.
    """

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:
        """Attach the agent."""
        spare_what_is_imported()
        agent = current.agent()
        agent.attach(parent, signals.end_celery)
        celery_consumer.broker_away.connect(_tell(agent.broker_away), weak=False, dispatch_uid="gpuyard-away")
        celery_consumer.broker_back.connect(_tell(agent.broker_back), weak=False, dispatch_uid="gpuyard-back")
        celery_consumer.no_thread.connect(_no_thread, weak=False, dispatch_uid="gpuyard-no-thread")


def _no_thread(error: BaseException, **_: object) -> None:
    current.agent().no_thread(error)


def _tell(what: Callable[[], None]) -> Callable[..., None]:
    def tell(**_: object) -> None:
        what()

    return tell
