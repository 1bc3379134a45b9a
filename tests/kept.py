"""What starts once for the tests of several files, and ends with the last of them: idle, it would slow all others."""

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

_Thing = TypeVar("_Thing")


class Kept:
    """One thing at a time."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._thing: Any = None
        self._stack = ExitStack()

    def get(self, key: Hashable, make: Callable[[], AbstractContextManager[_Thing]]) -> _Thing:
        """Give what is kept under this key; anything else is ended, and this one is made."""
        if key != self._key:
            self.close()
            self._thing = self._stack.enter_context(make())
            self._key = key
        thing: _Thing = self._thing
        return thing

    def close(self) -> None:
        """End what there is."""
        self._key = self._thing = None
        self._stack.close()


kept = Kept()
"""Of this test process; tests/conftest.py closes it."""
