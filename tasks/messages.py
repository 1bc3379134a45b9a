"""What a message may carry: one id. Anybody who reaches the broker can send anything."""

import re

import structlog

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_SHOWN = 80

log = structlog.get_logger(__name__)


def one_id(task: str, args: tuple[object, ...], kwargs: dict[str, object]) -> str | None:
    """The id a message carries, or None, logged, when it is no message of ours: it is dropped, never sent again."""
    if len(args) == 1 and not kwargs and isinstance(args[0], str) and _ID.fullmatch(args[0]):
        return args[0]
    log.warning("message dropped: it must carry one id", task=task, got=_shape(args, kwargs))
    return None


def _shape(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """A short description: a forged message may be megabytes long, or hold what looks like a log line."""
    first = f", the first {repr(args[0])[:_SHOWN]}" if args and isinstance(args[0], str | int) else ""
    return f"{len(args)} arguments{first}, {len(kwargs)} by keyword"
