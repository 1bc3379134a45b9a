"""The agent of this process: set once by the Celery worker that starts it, asked for by the tasks."""

from collections.abc import Callable
from typing import Any, Protocol


class ProcessAgent(Protocol):
    """What Celery's side needs of the agent."""

    @property
    def name(self) -> str:
        """The worker's name, known once `start` has returned; Celery's node name is built from it."""

    def start(self) -> None:
        """Say hello to the control plane and begin to beat. Raises SystemExit(1) when it is refused."""

    def attach(self, celery_worker: Any, on_exit: Callable[[int], None]) -> None:
        """Take the worker's queues and its end over; called before its consumer starts."""

    def on_signal(self) -> None:
        """Somebody wants this process to end; may raise SystemExit in the main thread."""

    def on_shutdown(self) -> None:
        """Celery ends; give back control when everything is in good order."""

    def broker_away(self) -> None:
        """The consumer has lost its broker, or has not found it yet."""

    def broker_back(self) -> None:
        """The consumer takes messages."""

    def no_thread(self, error: BaseException) -> None:
        """A message came, and no thread can be started for it."""

    def run_batch(self, batch_id: str) -> None:
        """Work on the batch, or a better one, until the control plane has no more for this worker."""

    def beat_now(self, batch_id: str) -> None:
        """Ask the control plane at once about the leases of this batch."""

    def call(self) -> None:
        """Ask the control plane at once what it has for this worker."""


_agent: ProcessAgent | None = None


def install(agent: ProcessAgent) -> ProcessAgent:
    """Make `agent` the one of this process."""
    global _agent  # noqa: PLW0603 - Celery calls tasks with nothing but their message
    _agent = agent
    return agent


def agent() -> ProcessAgent:
    """The process's agent. Raises RuntimeError in a process that is no GPU worker."""
    if _agent is None:
        raise RuntimeError("no agent runs in this process: start it with `celery -A app worker -Q <pool>`")
    return _agent
