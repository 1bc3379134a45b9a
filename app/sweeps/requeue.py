"""requeue: ring again for queued work that nobody was rung for lately; every lost bell is mended here (PROTOCOL 6)."""

from collections.abc import Mapping

from app.services import rings
from app.services.context import Yard


def run_once(yard: Yard, limit: int) -> Mapping[str, int]:
    """Ring for a window of each pool's batches, and for control work."""
    batches, control = rings.unheard(yard, limit)
    for batch_id, quiet_seconds in batches:
        yard.bells.batch(batch_id, quiet_seconds=quiet_seconds)
    for batch_id in control:
        yard.bells.control(batch_id, quiet_seconds=rings.AGAIN_SECONDS)
    return {"batches": len(batches), "control": len(control)}
