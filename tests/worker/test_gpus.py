"""What a worker knows of its GPUs, by the real pynvml over a driver's library that the tests steer."""

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from app.schemas.workers import GpuSample
from app.worker.gpus import ABSENT_SECONDS, HUNG_SECONDS, LOOK_SECONDS, Driver, GpuLook, GpuWatch
from app.worker.sampler import Sampler
from tests.fakes.nvml import DEVICE_NAME, HANDLE, MEMORY, UTILIZATION, compile_into, driver_library, nvml

__all__ = ["driver_library", "nvml"]
GIB = 1 << 30
H200 = GpuSample(index=0, name="NVIDIA H200", memory_total=141 * GIB, memory_used=40 * GIB, utilization=70.0)
NO_PERMISSION, NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = 4, 3, 9, 15, 18


def test_every_gpu_is_told_with_its_memory_and_how_busy_it_is(nvml: ctypes.CDLL) -> None:
    nvml.fake_gpus(2)
    assert Driver().look() == GpuLook("570.86.15", (H200, H200.model_copy(update={"index": 1})))


def test_without_a_driver_there_is_nothing_to_say_and_one_that_comes_later_is_found(nvml: ctypes.CDLL) -> None:
    driver = Driver()
    assert driver.look() == GpuLook()
    nvml.fake_gpus(1)
    assert driver.look().gpus == (H200,)


def test_nothing_is_said_where_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pynvml.nvmlLib", None)
    monkeypatch.setattr("pynvml.CDLL", raising)
    assert Driver().look() == GpuLook()


def raising(name: str) -> None:
    raise OSError(name)


@pytest.mark.parametrize("call", [HANDLE, DEVICE_NAME, MEMORY])
def test_one_gpu_that_is_lost_hides_no_other(nvml: ctypes.CDLL, call: int) -> None:
    nvml.fake_gpus(2)
    nvml.fake_error(0, call, GPU_IS_LOST)
    lost, fine = Driver().look().gpus
    assert lost.error == "NVML: GPU is lost"
    assert (fine.name, fine.memory_total, fine.error) == ("NVIDIA H200", 141 * GIB, None)


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST])
def test_a_gpu_that_does_not_tell_how_busy_it_is_is_still_told(nvml: ctypes.CDLL, error: int) -> None:
    nvml.fake_gpus(1)
    nvml.fake_error(0, UTILIZATION, error)
    assert Driver().look().gpus == (H200.model_copy(update={"utilization": None}),)


def test_a_gpu_without_memory_of_its_own_has_no_size_and_no_error(nvml: ctypes.CDLL) -> None:
    nvml.fake_gpus(1)
    nvml.fake_error(0, MEMORY, NOT_SUPPORTED)
    (gpu,) = Driver().look().gpus
    assert (gpu.memory_total, gpu.memory_used, gpu.error) == (None, None, None)


def test_figures_that_this_user_may_not_see_are_named_as_such(nvml: ctypes.CDLL) -> None:
    nvml.fake_gpus(1)
    nvml.fake_error(0, MEMORY, NO_PERMISSION)
    (gpu,) = Driver().look().gpus
    assert (gpu.name, gpu.memory_total, gpu.error) == ("NVIDIA H200", None, "NVML: Insufficient Permissions")


def test_slices_stand_for_their_gpu(nvml: ctypes.CDLL) -> None:
    nvml.fake_gpus(2)
    nvml.fake_slices(1, 2)
    whole, *slices = Driver().look().gpus
    assert whole == H200
    assert [(one.index, one.name, one.utilization) for one in slices] == [(1, "NVIDIA H200 MIG 1g.18gb", None)] * 2
    assert {one.memory_total for one in slices} == {141 * GIB // 7}


def test_a_name_that_is_no_text_is_one_gpus_trouble(nvml: ctypes.CDLL) -> None:
    nvml.fake_gpus(2)
    nvml.fake_name(0, b"\xff\xfe")
    odd, fine = Driver().look().gpus
    assert odd.name == "GPU 0"
    assert odd.error
    assert fine.error is None


def test_a_driver_that_fails_as_a_whole_says_why_and_is_opened_anew(nvml: ctypes.CDLL) -> None:
    nvml.fake_gpus(1)
    nvml.fake_init_error(VERSION_MISMATCH)
    driver = Driver()
    assert driver.look().error == "NVML: RM has detected an NVML/RM version mismatch."
    nvml.fake_init_error(0)
    assert driver.look().gpus == (H200,)
    opened = nvml.fake_inits()
    driver.look()
    assert nvml.fake_inits() == opened
    nvml.fake_count_error(GPU_IS_LOST)
    assert driver.look().error == "NVML: GPU is lost"
    nvml.fake_count_error(0)
    assert driver.look().gpus == (H200,)
    assert nvml.fake_inits() == opened + 1


class TestADriverThatHangs:
    def test_is_said_to_be_silent_and_found_again(self, nvml: ctypes.CDLL) -> None:
        now = [0.0]
        nvml.fake_gpus(1)
        watch = GpuWatch(clock=lambda: now[0])
        assert watch.turn() == LOOK_SECONDS
        nvml.fake_hang(1)
        hanging = threading.Thread(target=watch.turn)
        hanging.start()
        now[0] = HUNG_SECONDS
        assert watch.now().gpus == (H200,)
        now[0] = HUNG_SECONDS + 12
        assert watch.now() == GpuLook("570.86.15", error="NVIDIA's driver has not answered for 42 s")
        nvml.fake_hang(0)
        hanging.join(10)
        assert watch.now().gpus == (H200,)

    def test_keeps_no_sample_of_the_host_waiting(self, nvml: ctypes.CDLL, tmp_path: Path) -> None:
        nvml.fake_gpus(1)
        nvml.fake_hang(1)
        sampler = Sampler(tmp_path)
        began = time.monotonic()
        sampler.start()
        try:
            found = sampler.first(10)
            assert found is not None
            assert found.memory_total
            assert found.gpus == []
            assert "has not answered" in (found.gpu_error or "")
            assert time.monotonic() - began < 10
        finally:
            sampler.stop()
            nvml.fake_hang(0)
            sampler.join(10)


def test_a_machine_without_a_driver_is_asked_seldom_and_stays_quiet(nvml: ctypes.CDLL) -> None:
    now = [0.0]
    watch = GpuWatch(clock=lambda: now[0])
    assert watch.turn() == ABSENT_SECONDS
    now[0] = 10 * ABSENT_SECONDS
    assert watch.now() == GpuLook()
    assert nvml.fake_inits() == 1


def test_a_process_that_starts_beside_the_driver_finds_it_by_its_usual_name(tmp_path: Path) -> None:
    compile_into(tmp_path)
    script = (
        "import ctypes, json; ctypes.CDLL('libnvidia-ml.so.1').fake_gpus(1)\n"
        "from app.worker.gpus import Driver; print(json.dumps([g.name for g in Driver().look().gpus]))"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == ["NVIDIA H200"]
