"""The GPUs of this host as NVIDIA's driver tells of them, by NVML (HD-05, HD-06).

A driver may be absent, come later, lose one GPU, refuse a figure (a MIG slice has no utilisation, unified memory no
size), or hang. Nobody but GpuWatch, a thread of its own, ever waits for it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from app.schemas.fitting import fit
from app.schemas.workers import MAX_GPUS, GpuSample
from app.worker.loop import Loop

LOOK_SECONDS = 5.0
ABSENT_SECONDS = 60.0
"""A driver that is not there is asked for this often: it may be loaded after the worker has started."""
HUNG_SECONDS = 30.0
"""After this long without an answer the last one is no figure of now."""
_MAX_TEXT = 200


class GpuLook(NamedTuple):
    """What one look showed. No driver: nothing at all. `error` is why there is nothing although there is a driver."""

    driver: str | None = None
    gpus: tuple[GpuSample, ...] = ()
    error: str | None = None


class Driver:
    """NVML, opened when it is there and anew after it failed as a whole. For one thread."""

    def __init__(self) -> None:
        self._nvml: Any = None

    def look(self) -> GpuLook:
        """Ask for every GPU. May hang; never raises."""
        import pynvml  # noqa: PLC0415 - a machine without GPUs never needs it

        try:
            if self._nvml is None:
                pynvml.nvmlInit()
                self._nvml = pynvml
            count = pynvml.nvmlDeviceGetCount()
            gpus = [gpu for index in range(count) for gpu in _gpus(pynvml, index)]
            driver = _ask(pynvml, pynvml.nvmlSystemGetDriverVersion)[0]
            return GpuLook(driver, tuple(gpus[:MAX_GPUS]))
        except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
            self._nvml = None
            return GpuLook()
        except pynvml.NVMLError as error:
            self._close(pynvml)
            return GpuLook(error=f"NVML: {error}"[:_MAX_TEXT])

    def _close(self, nvml: Any) -> None:
        """Begin anew the next time: after a driver was replaced, an old handle of it never works again."""
        if self._nvml is not None:
            _ask(nvml, nvml.nvmlShutdown)
            self._nvml = None


class GpuWatch(Loop):
    """Looks every few seconds; `now` says what is known, at once."""

    name = "gpus"

    def __init__(self, driver: Driver | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._driver = driver or Driver()
        self._clock = clock
        self._began_at = clock()
        self._looked: tuple[GpuLook, float] | None = None
        self._first = threading.Event()

    def turn(self) -> float:
        """Look once."""
        look = self._driver.look()
        self._looked = look, self._clock()
        self._first.set()
        return ABSENT_SECONDS if look == GpuLook() else LOOK_SECONDS

    def wait(self, seconds: float) -> None:
        """Wait for the first look."""
        self._first.wait(seconds)

    def now(self) -> GpuLook:
        """Give the last look, or say since when the driver is silent."""
        look, at = self._looked or (GpuLook(), self._began_at)
        silent = self._clock() - at
        if self._looked is not None and look == GpuLook():
            return look
        if silent > HUNG_SECONDS or self._looked is None:
            return GpuLook(driver=look.driver, error=f"NVIDIA's driver has not answered for {silent:.0f} s")
        return look


def _gpus(nvml: Any, index: int) -> Iterator[GpuSample]:
    """Give a GPU, or its MIG slices: programs see those instead."""
    handle, error = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if error is not None:
        yield GpuSample(index=index, name=f"GPU {index}", error=error)
        return
    for one in list(_slices(nvml, handle)) or [handle]:
        yield _gpu(nvml, index, one)


def _slices(nvml: Any, handle: Any) -> Iterator[Any]:
    mode, _ = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return
    for number in range(_ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle)[0] or 0):
        one, error = _ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if error is None:
            yield one


def _gpu(nvml: Any, index: int, handle: Any) -> GpuSample:
    name, no_name = _ask(nvml, nvml.nvmlDeviceGetName, handle)
    memory, no_memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates, _ = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    seen = {
        "index": index,
        "name": str(name)[:_MAX_TEXT] if name is not None else f"GPU {index}",
        "memory_total": int(memory.total) if memory is not None else None,
        "memory_used": int(memory.used) if memory is not None else None,
        "utilization": float(rates.gpu) if rates is not None else None,
        "error": no_name or no_memory,
    }
    return fit(GpuSample, seen) or GpuSample(index=index, name=f"GPU {index}")


def _ask(nvml: Any, call: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    """Give an answer, or why there is none; what a GPU has not got is no error."""
    try:
        return call(*arguments), None
    except nvml.NVMLError_NotSupported:
        return None, None
    except (nvml.NVMLError, ValueError) as error:  # ValueError: a name that is no text
        return None, f"NVML: {error}"[:_MAX_TEXT]
