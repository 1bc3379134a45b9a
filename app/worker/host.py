"""What the host of a worker looks like at this moment (HD-05, HD-06)."""

import os
import socket
from pathlib import Path

import psutil

from app.schemas.fitting import fit
from app.schemas.workers import HostSample
from app.worker.gpus import GpuLook


def hostname() -> str:
    """Name the host as `machine_id = "auto"` does."""
    return socket.gethostname()


def sample(directory: Path, gpus: GpuLook) -> HostSample:
    """Look at load, memory and the disk of `directory`, and add what is known of the GPUs.

    May take long where a file system hangs: a heartbeat asks a Sampler instead.
    """
    memory = psutil.virtual_memory()
    seen = {
        "load1": os.getloadavg()[0],
        "cpus": psutil.cpu_count(),
        "memory_total": memory.total,
        "memory_available": memory.available,
        "disk_free": _disk_free(directory),
        "gpus": list(gpus.gpus),
        "driver": gpus.driver,
        "gpu_error": gpus.error,
    }
    # Some file systems have more room than there is; a heartbeat with such a figure would be refused.
    return fit(HostSample, seen) or HostSample()


def _disk_free(directory: Path) -> int | None:
    try:
        return int(psutil.disk_usage(str(directory)).free)
    except OSError:  # somebody removed it, or its disk is gone: the rest is known all the same
        return None
