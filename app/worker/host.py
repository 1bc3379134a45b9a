"""What the host of a worker looks like at this moment (HD-05, HD-06)."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from app.schemas.fitting import fit
from app.schemas.workers import HostSample
from app.worker.gpus import GpuLook
from config.broker_url import is_loopback

_OLLAMA_FOLDERS = ("~/.ollama/models", "/usr/share/ollama/.ollama/models")


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


class ModelRoom:
    """Whether a model fits this machine: its disk, and GPU and host memory together.

    Nothing is known of a runtime on another machine, so every model fits there.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], *, vram_gb: float | None) -> None:
        self._directory = directory
        self._environment = environment
        self._vram_gb = vram_gb

    def lacking(self, url: str | None, latest: HostSample | None, *, size: int, missing: int) -> str | None:
        """Say why a model of `size` bytes, `missing` of which are to come, does not fit; None where it does."""
        if url is not None and not is_loopback(urlsplit(url).hostname or "localhost"):
            return None
        return self._lacks_disk(missing) or self._lacks_memory(latest, size)

    def _lacks_disk(self, missing: int) -> str | None:
        folder = self._folder()
        free = _disk_free(folder)
        if free is None or missing <= free:
            return None
        return f"{_gb(missing)} of it are missing and {folder} has {_gb(free)} free"

    def _lacks_memory(self, latest: HostSample | None, size: int) -> str | None:
        if latest is None or latest.memory_total is None:
            return None
        probed = sum(gpu.memory_total or 0 for gpu in latest.gpus)
        gpu, host = self._vram_gb * 1e9 if self._vram_gb is not None else probed, latest.memory_total
        if size <= gpu + host:
            return None
        return f"it has {_gb(size)}, and the worker has {_gb(gpu)} of GPU memory and {_gb(host)} of host memory"

    def _folder(self) -> Path:
        """Where Ollama keeps its models, as far as can be told; else the folder of the worker itself."""
        named = self._environment.get("OLLAMA_MODELS")
        places = [Path(named)] if named else [Path(place).expanduser() for place in _OLLAMA_FOLDERS]
        return next((place for place in places if os.access(place, os.F_OK)), self._directory)


def _gb(count: float) -> str:
    return f"{count / 1e9:,.1f} GB"
