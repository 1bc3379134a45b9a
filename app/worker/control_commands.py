"""What the control side may say to all workers at once over the broker: hints only, never orders.

Anybody who reaches the broker can send one. So a command makes the agent ask the control plane, and nothing more.
"""

from typing import Any

from celery.worker.control import control_command

from app.worker import current


@control_command(args=[("batch_id", str)], signature="<batch_id>")
def gpuyard_stop(_state: Any, batch_id: str) -> dict[str, str]:
    """A batch was told to stop: beat now, for the answer says `stop` for its leases (PROTOCOL 5)."""
    current.agent().beat_now(batch_id)
    return {"ok": "asking"}


@control_command(args=[], signature="")
def gpuyard_call(_state: Any) -> dict[str, str]:
    """The control plane has something to ask: beat now, for the answer says what."""
    current.agent().call()
    return {"ok": "asking"}
