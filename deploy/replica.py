"""What a worker's container runs in front of its command, so that `--scale worker=3` gives three workers.

All replicas have the same environment and the same volume. A worker has a name and a state directory of its own, so
each replica takes the first number that is free: 1 is called as the environment says, 2 has `-2` behind both, and so
on. The number is held by a lock that ends with the container, and whoever comes next goes on with what lies there.

Usage: python replica.py COMMAND...
"""

import fcntl
import os
import sys
from itertools import count
from pathlib import Path

STATE_DIR, NAME = "GPUYARD_STATE_DIR", "GPUYARD_WORKER_NAME"


def take_number(state: Path) -> int:
    """Lock the first free number beside the state directory; the lock goes with this process, over exec."""
    state.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        file = os.open(state.with_name(f"{state.name}.replica-{number}"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            os.set_inheritable(file, True)  # noqa: FBT003 - it is an argument by position only
            return number
    raise AssertionError


def main(command: list[str]) -> None:
    """Become the command, under the name and in the folder of its number."""
    state = Path(os.environ[STATE_DIR])
    number = take_number(state)
    if number > 1:
        os.environ[STATE_DIR] = str(state.with_name(f"{state.name}-{number}"))
        if name := os.environ.get(NAME):
            os.environ[NAME] = f"{name}-{number}"
    os.execvp(command[0], command)  # noqa: S606 - what the stack says


if __name__ == "__main__":
    main(sys.argv[1:])
