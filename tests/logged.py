"""What a process logs, as JSON: for tests of what stands on its lines."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from config.logging import configure

LONG = 20.0
LineOf = Callable[[str], dict[str, object]]


@contextmanager
def logged(process: str, file: Path) -> Iterator[LineOf]:
    """Log as `process` does, into `file`. Gives what waits for the first line whose event begins so."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure(process, level="DEBUG", as_json=True, file=file)

    def line_of(event: str) -> dict[str, object]:
        end = time.monotonic() + LONG
        while True:
            found = [json.loads(line) for line in file.read_text().splitlines()]
            if one := next((line for line in found if line["event"].startswith(event)), None):
                return dict(one)
            assert time.monotonic() < end, found
            time.sleep(0.05)

    try:
        yield line_of
    finally:
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
        structlog.reset_defaults()
