"""What a worker says of its host."""

from pathlib import Path

import psutil
import pytest

from app.schemas.workers import GpuSample
from app.worker import host
from app.worker.gpus import GpuLook


def test_a_sample_knows_load_memory_and_disk(tmp_path: Path) -> None:
    found = host.sample(tmp_path, GpuLook())
    assert found.cpus is not None
    assert found.cpus >= 1
    assert found.memory_available is not None
    assert found.memory_total is not None
    assert 0 < found.memory_available <= found.memory_total
    assert found.disk_free is not None
    assert found.load1 is not None
    assert (found.gpus, found.driver, found.gpu_error) == ([], None, None)


def test_a_sample_carries_what_is_known_of_the_gpus(tmp_path: Path) -> None:
    gpu = GpuSample(index=0, name="NVIDIA H200")
    found = host.sample(tmp_path, GpuLook("570.86.15", (gpu,), "one is lost"))
    assert (found.gpus, found.driver, found.gpu_error) == ([gpu], "570.86.15", "one is lost")


def test_a_state_directory_that_is_gone_hides_nothing_else(tmp_path: Path) -> None:
    found = host.sample(tmp_path / "gone", GpuLook())
    assert found.disk_free is None
    assert found.memory_total is not None


def test_a_disk_of_more_bytes_than_there_are_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some network file systems say; a heartbeat with such a figure would be refused."""
    vast = psutil.disk_usage(str(tmp_path))._replace(free=2**70)
    monkeypatch.setattr(psutil, "disk_usage", lambda _path: vast)
    found = host.sample(tmp_path, GpuLook())
    assert found.disk_free is None
    assert found.memory_total is not None
