"""The control agent of this process: set once when the control worker starts, asked for by the tasks."""

from app.control.agent import ControlAgent

_agent: ControlAgent | None = None


def install(agent: ControlAgent) -> ControlAgent:
    """Make `agent` the one of this process."""
    global _agent  # noqa: PLW0603 - Celery calls tasks with nothing but their message
    _agent = agent
    return agent


def agent() -> ControlAgent:
    """The process's agent. Raises RuntimeError in a process that is no control worker."""
    if _agent is None:
        raise RuntimeError(
            "no control agent runs in this process: start it with `celery -A app.celery_control worker -Q control`"
        )
    return _agent
