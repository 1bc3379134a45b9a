"""Pulls of the fake Ollama, by the name of the model: how a real one goes right and wrong.

| model | its pull |
|---|---|
| `good` | goes through |
| `backwards` | counts down in the middle, as after a part that was fetched again |
| `errors`, `eof` | the first two tries end half-way, with an error line or without a word |
| `hopeless` | each try ends with the same error line and brings nothing |
| `stalls` | the first try falls silent |
| `repeats` | the first try says the same line for ever |
| `refused` | 400 before the first line |
| `huge`, `large` | its first layer, which is the model itself, has a petabyte, or 64 MB; nothing of it ever comes |
| `absent` | an error line after the manifest was asked for |
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

LAYERS = {"sha256:" + "a" * 64: 1000, "sha256:" + "b" * 64: 200}
ENDLESS = {"huge": 10**15, "large": 64 * 10**6}
BROKEN = {"error": "max retries exceeded: unexpected EOF"}
Line = dict[str, Any]


class Silence(Exception):
    """The answer ends without its last line."""


class Pulls:
    """Counts tries, so that what goes wrong first may go right later."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    async def lines(self, model: str) -> AsyncIterator[Line]:
        """Give the lines of one try."""
        name = model.partition(":")[0]
        self.tries[name] += 1
        yield {"status": "pulling manifest"}
        while name in ENDLESS:
            yield layer("sha256:" + "c" * 64, ENDLESS[name], 0)
            await asyncio.sleep(0.02)
        async for line in self._of_layers(name, self.tries[name]):
            yield line

    async def _of_layers(self, name: str, number: int) -> AsyncIterator[Line]:
        if name == "absent":
            yield {"error": "pull model manifest: file does not exist"}
            return
        fails = (number <= 2 and name in {"errors", "eof"}) or name == "hopeless"
        first = True
        for digest, total in LAYERS.items():
            steps = [0, total // 4, total // 2, total]
            if name == "backwards":
                steps = [0, total // 2, total // 4, total]
            for step in steps:
                if fails and step > (0 if name == "hopeless" else total * number // 4):
                    if name == "eof":
                        raise Silence
                    yield BROKEN
                    return
                if number == 1 and name == "stalls" and step:
                    await asyncio.Event().wait()
                while number == 1 and name == "repeats" and step > total // 4:
                    yield layer(digest, total, total // 4)
                    await asyncio.sleep(0.02)
                yield layer(digest, total, step, counted=not first or step > 0)
                first = False
        for status in ("verifying sha256 digest", "writing manifest", "success"):
            yield {"status": status}


def layer(digest: str, total: int, completed: int, *, counted: bool = True) -> Line:
    """Make a line of progress; the real one leaves out a `completed` of 0."""
    line: Line = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": total}
    return line | {"completed": completed} if counted and completed else line
