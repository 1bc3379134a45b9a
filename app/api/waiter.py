"""Whoever waits in this process's event loop for something new: a poll for a bell, a stream for an event."""

import asyncio
from contextlib import suppress


class Waiter:
    """Made and used in the event loop's thread. `is_over`: it is to end, whatever there is."""

    def __init__(self) -> None:
        self.is_over = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have it look."""
        self._woken.set()

    def end(self) -> None:
        """Have it end, with what it has."""
        self.is_over = True
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Wait to be woken, at most so long; tells whether it was."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken
