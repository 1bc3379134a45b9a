"""One log format for every process; keys and passwords never pass it.

Ours through structlog, everyone else's through the standard library, both by one handler on standard error. Whatever
is bound with `structlog.contextvars` (`batch_id`, `job_id`, `lease_id`, `request_id`) stands on each line of its
thread or call; what holds for the whole process (`worker`), on all of them.
"""

import logging
import re
import sys
from pathlib import Path

import structlog
from structlog.typing import Processor

_SECRETS = (
    (re.compile(r"\bgk-[A-Za-z0-9_-]{4,}"), "gk-***"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s\"',]+"), r"\1***"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@\"']*):[^\s/@\"']+@"), r"\1:***@"),
    (re.compile(r"([?&](?:ssl)?password=)[^\s&;\"']+"), r"\1***"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/]{8,}=*"), "whsec_***"),
)

LINE_CHARACTERS = 16_384

# A line a call, lines at each look at the schema.
NOISY = frozenset({"httpx", "alembic.runtime"})
# Ten lines every five seconds that say "a sweep was rung". On a GPU worker a task is a batch, and worth its lines.
NOISY_TICKS = frozenset({"celery.beat", "celery.worker.strategy", "celery.app.trace"})


_everywhere: dict[str, str] = {}


def stand_on_each_line(**fields: str) -> None:
    """Have every line of this process say so from now on: new threads do not inherit what another one bound."""
    _everywhere.update(fields)


def redact(text: str) -> str:
    """`text` without API keys, bearer tokens, passwords of URLs and secrets of webhooks."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """Redacts the finished line, so that tracebacks, libraries' messages and bound values are covered alike."""

    def format(self, record: logging.LogRecord) -> str:
        """Render, redact and cut: a forged message may be megabytes long, and an exception may quote it."""
        line = super().format(record)
        if len(line) <= LINE_CHARACTERS:
            return redact(line)
        # Redacted with what follows the cut, or half a secret would stand at its edge.
        return redact(line[: 2 * LINE_CHARACTERS])[:LINE_CHARACTERS] + f"… ({len(line)} characters)"


def configure(process: str, *, level: str = "INFO", as_json: bool = False, file: Path | None = None) -> None:
    """Set the process's logging up, once, at its entry point; a second call replaces the first.

    `process` names the role (api, control, beat, worker, cli) on every line. `file` replaces standard error.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.StackInfoRenderer(),
        _named(process),
    ]
    renderer: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=file is None and sys.stderr.isatty(),
                timestamp_key="at",
                # The default prints every frame's local variables: users' rows, and keys in forms nobody redacts.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    handler: logging.Handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file)
    handler.setFormatter(
        RedactingFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, RedactingFormatter):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    root.setLevel(level)
    for name in NOISY if process == "worker" else NOISY | NOISY_TICKS:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _named(process: str) -> Processor:
    def add(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event.setdefault("process", process)
        for name, value in _everywhere.items():
            event.setdefault(name, value)
        return event

    return add
