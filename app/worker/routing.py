"""Which runtimes may take a row, by its model, endpoint and parameters (R-23)."""

from collections.abc import Sequence

from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts
from app.worker.parameters import lacking, refusals
from app.worker.places import Place


def knowing(places: Sequence[Place], row: Row) -> tuple[Place, ...]:
    """Choose those that know a row's model on its endpoint, the dead ones too."""
    return tuple(place for place in places if _knows(place.facts, row.model, row.endpoint))


def fitting(row: Row, places: tuple[Place, ...]) -> tuple[Place, ...]:
    """Choose the runtimes that take all a row asks for; where none of them is up, those that can do with less."""
    if not row.parameters:
        return places
    lacks = {place: lacking(row, place.unsupported) for place in places}
    whole = tuple(place for place in places if lacks[place] is not None and not lacks[place])
    if not row.may_drop or any(place.facts.alive and not place.breaker.is_down for place in whole):
        return whole
    return tuple(place for place in places if lacks[place] is not None)


def refused(row: Row, places: Sequence[Place]) -> Reply:
    """Make the reply of a row that none of `places` takes whole."""
    names = frozenset[str]().union(*(refusals(row, place.unsupported) for place in places))
    message = f"No runtime of this worker that serves {row.model!r} takes all of this: {', '.join(sorted(names))}"
    return Reply(error=RowError(RowErrorCode.UNSUPPORTED_PARAMETER, message[:2000]))


def _knows(facts: RuntimeFacts, model: str, endpoint: str) -> bool:
    return endpoint in facts.endpoints and any(model in served.names for served in facts.models)
