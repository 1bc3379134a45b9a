"""What the host of a worker looks like at this moment (HD-05, HD-06)."""

import os
import socket
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from app.schemas.workers import GpuSample, HostSample


def hostname() -> str:
    """Name the host as `machine_id = "auto"` does."""
    return socket.gethostname()


def sample(directory: Path) -> HostSample:
    """Look at load, memory, the disk of `directory`, and every GPU that NVML shows.

    May take long where a driver or a file system hangs: a heartbeat asks a Sampler instead.
    """
    memory = psutil.virtual_memory()
    return HostSample(
        load1=os.getloadavg()[0],
        cpus=psutil.cpu_count(),
        memory_total=memory.total,
        memory_available=memory.available,
        disk_free=psutil.disk_usage(str(directory)).free,
        gpus=gpus(),
    )


def gpus() -> list[GpuSample]:
    """Ask the driver; none there means none found, quietly."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []


def _gpu(nvml: Any, index: int) -> GpuSample:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        utilization = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:  # a MIG slice has none
        utilization = None
    return GpuSample(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        memory_total=int(memory.total),
        memory_used=int(memory.used),
        utilization=utilization,
    )


@cache
def _nvml() -> Any:
    """The driver's library, or None where there is no driver. Asked once: a driver does not appear in mid-run."""
    import pynvml  # noqa: PLC0415 - ctypes loads on import

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
