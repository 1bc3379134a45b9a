"""What a row has in common with others, as the runtimes on its way see it: read before a lock is taken."""

from collections.abc import Hashable

import structlog

from app.domain.rows import Row
from app.worker import chunks
from app.worker.lines import Route
from app.worker.units import Unit
from executors.base import BaseExecutor

log = structlog.get_logger("gpuyard.worker")


def sort(unit: Unit, route: Route) -> None:
    """Note it on the row."""
    row = unit.row
    unit.lot = (row.model, *(_group(executor, row) for executor in route.groupers))
    unit.sharing = chunks.sharing(route.groupers, row)


def _group(executor: BaseExecutor, row: Row) -> Hashable:
    try:
        group = executor.group(row)
        hash(group)
    except Exception as error:  # noqa: BLE001 - a third party's executor: the row goes with others of its model
        log.warning("runtime.cannot_group_row", runtime=executor.kind, row=row.number, why=repr(error)[:500])
        return None
    return group
