"""Beat's schedule: the sweeps, by name. Beat only rings; who runs a pass is elected in the database (PROTOCOL 6).

A tick carries no `expires`: that would be judged by the consumer's clock.
"""

from typing import Any, Final

from config.queues import CONTROL

SWEEP_TASK: Final = "sweep"
SWEEPS: Final = ("heartbeat-sweeper", "lease-expiry", "requeue", "batch-expiry", "retention")


def schedule(*, sweep_seconds: float, retention_sweep_seconds: float) -> dict[str, dict[str, Any]]:
    """One entry a sweep; its task is `sweep`, its only argument the entry's name."""
    return {
        name: {
            "task": SWEEP_TASK,
            "schedule": retention_sweep_seconds if name == "retention" else sweep_seconds,
            "args": (name,),
            "options": {"queue": CONTROL},
        }
        for name in SWEEPS
    }
