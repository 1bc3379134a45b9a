"""What batches need of workers, read once a process: validation decides it, and it never changes.

A claim and a heartbeat judge every batch of a window, and the lists of one that names many models are long: no
statement of theirs reads `batch.requirements` (app.db.batches.WITHOUT_LISTS).
"""

from collections.abc import Mapping

from app.db.tables import Batch
from app.domain.eligibility import Requirement, WorkerView
from app.domain.needs import Needs

KEPT = 1_000
"""Batches whose needs are kept; of more the one that was asked for longest ago is read again."""
_kept: dict[str, Needs] = {}


def requirements(batch: Batch) -> Mapping[str, Requirement]:
    """Read a batch's distinct needs by key, for people."""
    return {
        key: Requirement(
            endpoint=need["endpoint"],
            models=tuple(need["models"]),
            # Batches validated before there were any have no such key.
            parameters=tuple((model, tuple(names)) for model, names in (need.get("parameters") or {}).items()),
        )
        for key, need in batch.requirements.items()
    }


def needs_of(batch: Batch) -> Needs:
    """Return a batch's needs, ready to be judged."""
    found = _kept.pop(batch.id, None)
    if found is None:
        found = Needs(requirements(batch))
    if len(found):  # one that is not validated has none yet
        _kept[batch.id] = found  # behind all others
    if len(_kept) > KEPT:
        for oldest in list(_kept)[: len(_kept) - KEPT]:
            _kept.pop(oldest, None)
    return found


def servable_keys(batch: Batch, view: WorkerView) -> frozenset[str]:
    """Name the needs of a batch that the worker's live runtimes serve now."""
    return needs_of(batch).served_by(view.runtimes)
