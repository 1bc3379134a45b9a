"""A driver without a GPU: `nvml.c`, compiled where there is a compiler, in the place of libnvidia-ml.so.1."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_suffix(".c")
NAME = "libnvidia-ml.so.1"
HANDLE, DEVICE_NAME, MEMORY, UTILIZATION = range(4)
"""Calls that may fail, for `fake_error`."""


def compile_into(folder: Path) -> Path:
    """Build the library; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / NAME
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{NAME}", "-o", str(library), str(SOURCE)], check=True
    )
    return library


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Load it under its soname: whoever asks for libnvidia-ml.so.1 in this process gets it from now on."""
    return ctypes.CDLL(str(compile_into(tmp_path_factory.mktemp("nvml"))), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def nvml(driver_library: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    """Give the library without a driver behind it, and leave it so."""
    forget()
    driver_library.fake_reset()
    yield driver_library
    driver_library.fake_reset()
    forget()


def forget() -> None:
    """Let pynvml load its library anew."""
    pynvml.nvmlLib = None
    pynvml._nvmlLib_refcount = 0
    pynvml._nvmlGetFunctionPointer_cache.clear()
