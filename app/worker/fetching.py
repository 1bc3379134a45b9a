"""Which runtime of this worker fetches a model, and having it do so (B-28)."""

from collections.abc import Callable

from app.worker.places import Place
from app.worker.runtimes import RuntimeGone, Runtimes
from executors.base import PullFailed
from executors.cancellation import CancelToken


def fetcher(runtimes: Runtimes, model: str, endpoint: str) -> Place | None:
    """Give the runtime that is to fetch a model. None: a live one serves it, or no live one fetches models."""
    live = [place for place in runtimes.places if place.facts.alive and not place.breaker.is_down]
    if any(place.facts.serves(model=model, endpoint=endpoint) for place in live):
        return None
    return next((place for place in live if place.fetches and endpoint in place.facts.endpoints), None)


def fetch(
    runtimes: Runtimes, place: Place, model: str, *, progress: Callable[[int, int], None], cancelled: CancelToken
) -> None:
    """Have a runtime fetch a model, and see that it serves it now.

    Raises RowCancelled, RuntimeGone when the runtime is down, and PullFailed for everything else.
    """
    name = place.executor.name
    try:
        place.executor.pull(model, progress=progress, cancelled=cancelled)
    except PullFailed as error:
        if not runtimes.look_now(place).alive:
            raise RuntimeGone(f"{name} went down: {error}") from error
        raise
    facts = runtimes.look_now(place)
    if not facts.alive:
        raise RuntimeGone(f"{name} went down: {facts.reason}")
    if not any(model in served.names for served in facts.models):
        raise PullFailed(f"{name} has fetched {model!r} and does not list it by this name")
