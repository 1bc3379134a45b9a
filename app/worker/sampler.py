"""Looks at the host in a thread of its own: a driver that hangs stretches no heartbeat (HD-06)."""

from pathlib import Path

from app.schemas.workers import HostSample
from app.worker import host
from app.worker.loop import Loop

SAMPLE_SECONDS = 5.0


class Sampler(Loop):
    """Keeps the latest sample; None until there is one."""

    name = "sampler"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.latest: HostSample | None = None

    def turn(self) -> float:
        """Look once."""
        self.latest = host.sample(self._directory)
        return SAMPLE_SECONDS
