"""A row's parameters on this worker: which of its runtimes take them, and leaving out what none takes (R-23)."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import structlog

from app.domain.input_lines import parse_json
from app.domain.members import members, without
from app.domain.parameters import NONE, essential, keys_of, needed, parts_of, refused
from app.domain.rows import Row
from app.schemas.workers import MAX_PARAMETER_NAME, MAX_PARAMETERS
from executors.base import BaseExecutor

log = structlog.get_logger("gpuyard.worker")

Unsupported = Mapping[str, frozenset[str]]
"""Parameters that a runtime does not take, by endpoint."""


def asking(row: Row, *, may_drop: bool, left_out: frozenset[str] = NONE) -> Row:
    """Note on a row what it asks for that not every runtime takes; `left_out` is left out wherever it runs."""
    try:
        names = needed(row.endpoint, parse_json(row.body))
    except (ValueError, RecursionError):
        return row  # nested deeper than this thread reads: the runtime judges it
    if gone := names & left_out:
        row, keys = without_parameters(row, gone)
        row, names = replace(row, dropped=keys), names - gone
    return replace(row, parameters=names, may_drop=may_drop) if names else row


def refusals(row: Row, unsupported: Unsupported) -> frozenset[str]:
    """Give what a row asks for that a runtime does not take."""
    return refused(unsupported.get(row.endpoint, NONE), row.endpoint, row.parameters) if row.parameters else NONE


def lacking(row: Row, unsupported: Unsupported) -> frozenset[str] | None:
    """Give what would have to be left out of a row on a runtime; None when it may not run there at all."""
    names = refusals(row, unsupported)
    return None if names and (not row.may_drop or essential(row.endpoint, names)) else names


def without_parameters(row: Row, names: Collection[str]) -> tuple[Row, tuple[str, ...]]:
    """Leave parameters out of a row's body; gives the row and the keys that are gone from it."""
    if not names:
        return row, ()
    present = [member.key for member in members(row.body.decode())]
    keys = keys_of(row.endpoint, present, names)
    inner = {key: parts for key, parts in parts_of(row.endpoint, names).items() if key in present and key not in keys}
    kept = replace(row, body=without(row.body, keys, inner), parameters=row.parameters - frozenset(names))
    return kept, tuple(sorted([*keys, *(f"{key}.{part}" for key, parts in inner.items() for part in parts)]))


def unsupported_by(executor: BaseExecutor, endpoints: Collection[str], before: Unsupported) -> Unsupported:
    """Ask an executor what it does not take; `before` where it fails, as a third party's may."""
    try:
        return {endpoint: names for endpoint in endpoints if (names := frozenset(executor.unsupported(endpoint)))}
    except Exception:
        log.exception("runtime.parameters_unknown", runtime=executor.name)
        return before


def told(unsupported: Unsupported, endpoints: Collection[str]) -> dict[str, list[str]]:
    """Give what the control plane is told of it, as far as the wire takes it."""
    return {
        endpoint: [name for name in sorted(unsupported[endpoint]) if len(name) <= MAX_PARAMETER_NAME][:MAX_PARAMETERS]
        for endpoint in endpoints
        if endpoint in unsupported
    }
