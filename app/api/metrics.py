"""`/metrics`: the figures of the whole service, for a key of the operators with the scope `metrics` (DESIGN 11).

Not open on loopback: behind a TLS proxy every caller comes from there.
"""

from typing import Any

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.responses import Response

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.domain.errors import Forbidden
from app.services.context import Yard
from app.services.metric_families import ServiceCollector

_FIGURES: dict[int | str, dict[str, Any]] = {
    200: {"description": "One figure a line.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
router = APIRouter(route_class=GuardedRoute, tags=["health"])


def show(yard: Yard) -> None:
    """Add to what this process counts what it reads of the whole service."""
    yard.counters.registry.register(ServiceCollector(yard))


@router.get("/metrics", response_class=Response, responses=_FIGURES)
def metrics(yard: TheYard, caller: TheCaller) -> Response:
    """Give the service's figures in Prometheus' text format; a key of the operators' org only."""
    if not caller.operator:
        raise Forbidden("the figures are of all orgs, so only the operator's keys read them", code="operator_only")
    return Response(generate_latest(yard.counters.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
