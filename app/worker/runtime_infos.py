"""What the control plane is told of a runtime, as far as the wire takes it."""

from app.domain.runtimes import RuntimeFacts
from app.schemas.workers import MAX_ENDPOINTS, MAX_MODEL_NAME, MAX_MODELS, RuntimeInfo
from app.worker.breaker import Breaker
from app.worker.parameters import told
from app.worker.places import Place


def info(place: Place) -> RuntimeInfo:
    """Describe one. A runtime that is down by its rows is not alive, whatever its probe says."""
    facts, breaker = place.facts, place.breaker
    return RuntimeInfo(
        name=facts.name[:200],
        kind=facts.kind[:64],
        alive=facts.alive and not breaker.is_down,
        reason=reason(facts, breaker)[:500] or None,
        models=_names(facts),
        endpoints=list(facts.endpoints)[:MAX_ENDPOINTS],
        slots=facts.slots,
        version=facts.version[:100] if facts.version else None,
        unsupported=told(place.unsupported, facts.endpoints[:MAX_ENDPOINTS]),
        pulls=place.fetches,
    )


def reason(facts: RuntimeFacts, breaker: Breaker) -> str:
    """Say why a runtime takes no rows, or not all; empty when nothing is wrong."""
    if not facts.alive or breaker.is_closed:
        return facts.reason
    return f"degraded: {breaker.reason}" if breaker.is_down else f"rows fail, one at a time is tried: {breaker.reason}"


def _names(facts: RuntimeFacts) -> list[str]:
    """Give what the wire takes of a runtime's models; a runtime that lists more is no reason to fall silent."""
    names = (name for model in facts.models for name in model.names)
    return [name for name in names if len(name) <= MAX_MODEL_NAME][:MAX_MODELS]
