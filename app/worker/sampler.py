"""Looks at the host in a thread of its own: what hangs there stretches no heartbeat and no hello (HD-06)."""

import threading
from pathlib import Path

from app.schemas.workers import HostSample
from app.worker import host
from app.worker.gpus import GpuWatch
from app.worker.loop import Loop

SAMPLE_SECONDS = 5.0
GPU_SECONDS = 2.0
"""So long the first sample waits for the first look at the GPUs."""


class Sampler(Loop):
    """Keeps the latest sample; None until there is one. Starts and stops the watch over the GPUs with itself."""

    name = "sampler"

    def __init__(self, directory: Path, gpus: GpuWatch | None = None) -> None:
        super().__init__()
        self._directory = directory
        self._gpus = gpus or GpuWatch()
        self._first = threading.Event()
        self.latest: HostSample | None = None

    def start(self) -> None:
        """Begin to look."""
        self._gpus.start()
        super().start()

    def stop(self) -> None:
        """End; does not wait for what hangs."""
        self._gpus.stop()
        super().stop()

    def first(self, seconds: float) -> HostSample | None:
        """Wait for the first sample, None when there is none in time."""
        self._first.wait(seconds)
        return self.latest

    def turn(self) -> float:
        """Look once."""
        if self.latest is None:
            self._gpus.wait(GPU_SECONDS)
        self.latest = host.sample(self._directory, self._gpus.now())
        self._first.set()
        return SAMPLE_SECONDS
