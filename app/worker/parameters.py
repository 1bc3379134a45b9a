"""A row's parameters on this worker: which of its runtimes take them, and leaving out what none takes (R-23)."""

from collections.abc import Collection
from dataclasses import replace

from app.domain.input_lines import parse_json
from app.domain.members import members, without
from app.domain.parameters import essential, keys_of, needed, refused
from app.domain.rows import Row
from app.schemas.workers import MAX_ENDPOINTS, MAX_PARAMETER_NAME, MAX_PARAMETERS
from executors.base import BaseExecutor


def asking(row: Row, *, may_drop: bool) -> Row:
    """Note on a row what it asks for that not every runtime takes."""
    try:
        names = needed(row.endpoint, parse_json(row.body))
    except (ValueError, RecursionError):
        return row  # nested deeper than this thread reads: the runtime judges it
    return replace(row, parameters=names, may_drop=may_drop) if names else row


def lacking(row: Row, unsupported: Collection[str]) -> frozenset[str] | None:
    """Give what would have to be left out of a row on a runtime; None when it may not run there at all."""
    names = refused(unsupported, row.endpoint, row.parameters)
    if names and (not row.may_drop or essential(row.endpoint, names)):
        return None
    return names


def without_parameters(row: Row, names: Collection[str]) -> tuple[Row, tuple[str, ...]]:
    """Leave parameters out of a row's body; gives the row and the keys that are gone from it."""
    if not names:
        return row, ()
    present = [member.key for member in members(row.body.decode())]
    keys = keys_of(row.endpoint, present, names)
    kept = replace(row, body=without(row.body, keys), parameters=row.parameters - frozenset(names))
    return kept, tuple(sorted(keys))


def told(executor: BaseExecutor, endpoints: Collection[str]) -> dict[str, list[str]]:
    """Give what the control plane is told of the parameters that a runtime does not take, by endpoint."""
    found = {endpoint: executor.unsupported(endpoint) for endpoint in list(endpoints)[:MAX_ENDPOINTS]}
    return {
        endpoint: [name for name in sorted(names) if len(name) <= MAX_PARAMETER_NAME][:MAX_PARAMETERS]
        for endpoint, names in found.items()
        if names
    }
