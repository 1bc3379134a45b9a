"""What the control plane is told of a runtime, as far as the wire takes it."""

from collections.abc import Iterable
from itertools import accumulate

from app.domain.runtimes import RuntimeFacts
from app.schemas.workers import (
    MAX_ENDPOINT,
    MAX_ENDPOINTS,
    MAX_LOADED,
    MAX_MODEL_NAME,
    MAX_MODELS,
    MAX_SLOTS,
    MAX_WORKER_MODELS,
    MAX_WORKER_TEXT,
    RuntimeInfo,
)
from app.worker.breaker import Breaker
from app.worker.parameters import told
from app.worker.places import Place


def infos(places: Iterable[Place]) -> list[RuntimeInfo]:
    """Describe all of a worker's runtimes; of more models than it may list the last ones are left out."""
    found = [info(place) for place in places]
    models, text = MAX_WORKER_MODELS, MAX_WORKER_TEXT - sum(one.text - sum(map(len, one.models)) for one in found)
    for number, one in enumerate(found):
        ends = accumulate(map(len, one.models))
        kept = [name for name, end in zip(one.models, ends, strict=True) if end <= text][:models]
        models, text = models - len(kept), text - sum(map(len, kept))
        found[number] = one.model_copy(update={"models": kept})
    return found


def info(place: Place) -> RuntimeInfo:
    """Describe one. A runtime that is down by its rows is not alive, whatever its probe says."""
    facts, breaker = place.facts, place.breaker
    return RuntimeInfo(
        name=facts.name[:200],
        kind=facts.kind[:64],
        alive=facts.alive and not breaker.is_down,
        reason=reason(facts, breaker)[:500] or None,
        models=_names(facts),
        loaded=[name for name in facts.loaded if len(name) <= MAX_MODEL_NAME][:MAX_LOADED]
        if facts.alive and facts.loaded is not None
        else None,
        endpoints=[path for path in facts.endpoints if len(path) <= MAX_ENDPOINT][:MAX_ENDPOINTS],
        slots=max(0, min(facts.slots, MAX_SLOTS)) if facts.slots is not None else None,
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
