"""What a worker says of its host, with or without a GPU."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.worker import host


class Trouble(Exception):
    """What NVML raises."""


def nvml(**more: Any) -> SimpleNamespace:
    """A driver's library with one GPU."""
    calls = {
        "NVMLError": Trouble,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _handle: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(total=100, used=40),
        "nvmlDeviceGetUtilizationRates": lambda _handle: SimpleNamespace(gpu=70),
    }
    return SimpleNamespace(**(calls | more))


def trouble(*_: object) -> None:
    raise Trouble


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    host._nvml.cache_clear()
    yield
    host._nvml.cache_clear()


def test_a_sample_knows_load_memory_and_disk(tmp_path: Path) -> None:
    found = host.sample(tmp_path)
    assert found.cpus is not None
    assert found.cpus >= 1
    assert found.memory_available is not None
    assert found.memory_total is not None
    assert 0 < found.memory_available <= found.memory_total
    assert found.disk_free is not None
    assert found.load1 is not None


def test_a_gpu_is_told_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    (gpu,) = host.gpus()
    assert (gpu.name, gpu.memory_total, gpu.memory_used, gpu.utilization) == ("NVIDIA H200", 100, 40, 70.0)


def test_a_slice_of_a_gpu_has_no_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetUtilizationRates=trouble))
    assert host.gpus()[0].utilization is None


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_no_driver_or_a_broken_one_is_no_gpu(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**{broken: trouble}))
    assert host.gpus() == []
