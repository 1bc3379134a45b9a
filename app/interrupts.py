"""Ctrl-C while a program begins. Both sides import it before all else, so it imports next to nothing itself."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130
"""What a shell says of a program that Ctrl-C ended, and every program of ours of itself."""


@contextmanager
def ends_at_once() -> Iterator[None]:
    """Have Ctrl-C end the process inside the block, without a word: an import has nothing to put in order.

    As an exception it would be shown with all the lines it came through, or be taken for one of the import's own.
    A handler that the block sets stays; and Ctrl-C that is ignored, as by a job in the background of a shell, stays so.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(EXIT_CODE)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is end:
            signal.signal(signal.SIGINT, before)
