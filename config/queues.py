"""Celery queues, by pool (DESIGN 9). All queues of a pool start with its name: one broker ACL covers a pool."""

import re

CONTROL = "control"
# Where a task goes that nobody routed, and what a worker started without -Q listens to: nothing is ever sent there
# on purpose. It must not be `control`, or a stray worker would take the control plane's work.
DEAD = "gpuyard-dead"

_POOL_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# The last two begin names that kombu's own keys have, and a pool's account has what begins with its name.
_RESERVED = frozenset({CONTROL, DEAD, "celery", "unacked", "default", "celeryev", "reply"})


def check_pool_name(name: str) -> str:
    """Return `name`. Raises ValueError when it cannot name a pool, hence a queue."""
    if not _POOL_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no pool name: lower-case letters, digits and hyphens, at most 63, starting with no hyphen"
        )
    if name in _RESERVED:
        raise ValueError(f"{name!r} is a reserved name and cannot name a pool")
    return name


def pool_queue(pool: str) -> str:
    """The queue of a pool's batches: its name."""
    return check_pool_name(pool)


def class_queue(pool: str, slot_class: str) -> str:
    """The queue of a pool's other slot classes: `gpu.runs`."""
    return f"{check_pool_name(pool)}.{slot_class}"


def setup_queue(pool: str, worker: str) -> str:
    """The queue of one worker's set-up commands: `gpu.setup.<worker>`."""
    return f"{check_pool_name(pool)}.setup.{worker}"
