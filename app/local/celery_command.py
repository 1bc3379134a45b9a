"""`celery` as this machine's own processes are started: the same command, without what other packages add to it.

At each start Celery imports every command that a package offers. Where Flower is installed, its own was a fifth of what
a start costs, of the control worker, of beat and of each GPU worker. `celery` itself does the same, a little later.
"""

import runpy
from importlib import metadata
from typing import Any

from app.interrupts import ends_at_once

ADDED = "celery.commands"
_entry_points = metadata.entry_points


def main() -> None:
    """Run `celery` with this process's arguments."""
    metadata.entry_points = _without_added
    with ends_at_once():  # until Celery has handlers of its own
        runpy.run_module("celery", run_name="__main__", alter_sys=True)


def _without_added(**asked: Any) -> Any:
    """Answer the first question for added commands with none, and be gone: whoever asks later gets what there is."""
    if asked.get("group") != ADDED:
        return _entry_points(**asked)
    metadata.entry_points = _entry_points
    return ()


if __name__ == "__main__":
    main()
