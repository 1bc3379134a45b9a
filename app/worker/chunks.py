"""Rows of one shard that share a request and so are one unit of work, under one permit and in one place (B-05).

Only what an executor says may be put together is (B-10), and a row that ended without an answer before goes alone.
"""

from collections.abc import Sequence

import structlog

from app.domain.parameter_table import EMBEDDINGS
from app.domain.rows import Reply, Row
from app.worker.parameters import lacking
from app.worker.places import Place
from app.worker.units import Run, Unit
from executors.base import BaseExecutor
from executors.cancellation import CancelToken

log = structlog.get_logger("gpuyard.worker")


def sharing(executors: Sequence[BaseExecutor], row: Row) -> tuple[type[BaseExecutor], ...]:
    """Name the kinds of executors that may put this row into a request with others. Reads the row: not for a lock."""
    if row.endpoint != EMBEDDINGS:
        return ()
    return tuple(type(executor) for executor in executors if _size(executor) > 1 and _may_share(executor, row))


def room(run: Run) -> int:
    """Say how many rows may join this one's request."""
    place = run.place
    return _size(place.executor) - 1 if place is not None and _is_free(run.unit, place) else 0


def may_join(run: Run, unit: Unit) -> bool:
    """Tell whether a row may join the request of `run`."""
    return run.place is not None and _is_free(unit, run.place)


def execute(run: Run, *, timeout: float, cancelled: CancelToken) -> list[Reply]:
    """Run all rows of a run: one reply a row, in their order. Raises RowCancelled, or what a defect raises."""
    if run.place is None:
        raise ValueError("rows without a runtime share nothing")
    executor, rows = run.place.executor, [unit.row for unit in run.units]
    replies = list(executor.execute_chunk(rows, timeout=timeout, cancelled=cancelled))
    if len(replies) != len(rows) or not all(isinstance(reply, Reply) for reply in replies):  # a third party's executor
        raise TypeError(f"{executor.name} gave {len(replies)} replies, or other things, for {len(rows)} rows")
    return replies


def _is_free(unit: Unit, place: Place) -> bool:
    takes_all = lacking(unit.row, place.unsupported) == frozenset()
    return type(place.executor) in unit.sharing and not unit.doubts and takes_all


def _size(executor: BaseExecutor) -> int:
    try:
        size: object = executor.embedding_chunk_size
    except Exception as error:  # noqa: BLE001 - a third party's executor may compute it
        log.warning("runtime.cannot_say_chunk_size", runtime=executor.kind, why=repr(error)[:500])
        return 1
    return size if isinstance(size, int) and size > 1 else 1


def _may_share(executor: BaseExecutor, row: Row) -> bool:
    try:
        return bool(executor.can_coalesce_embedding(row))
    except Exception as error:  # noqa: BLE001 - a third party's executor: a row that cannot be judged goes alone
        log.warning("runtime.cannot_judge_row", runtime=executor.kind, row=row.number, why=repr(error)[:500])
        return False
