"""GCC's OpenMP library for llama.cpp on a system that has none: a bare Debian, or a slim image.

xllamacpp's wheel is linked with `libgomp.so.1` and does not carry it. The wheel of `pykdtree` does carry it, in half a
megabyte, under a name of its own; it is installed for that file alone and never imported.
"""

import ctypes
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

NAME = "libgomp.so.1"
CARRIER = "pykdtree"


class OpenMP:
    """The environment of a child that loads llama.cpp. Keep it for as long as the child may still load libraries."""

    def __init__(self, *, installed: bool | None = None) -> None:
        """Look for the library. `installed` says whether the system has it; None means to try."""
        self.environment: Mapping[str, str] = os.environ
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        carried = None if (is_installed() if installed is None else installed) else find_carried()
        if carried is None:
            return
        # The loader looks for the name that llama.cpp asks for, so a folder holds the file under that name.
        self._folder = tempfile.TemporaryDirectory(prefix="gpuyard-openmp-")
        (Path(self._folder.name) / NAME).symlink_to(carried)
        before = os.environ.get("LD_LIBRARY_PATH")
        folders = [*([before] if before else []), self._folder.name]
        self.environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(folders)}

    def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            self._folder.cleanup()


def is_installed() -> bool:
    """Tell whether the system's loader finds the library."""
    try:
        ctypes.CDLL(NAME)
    except OSError:
        return False
    return True


def find_carried() -> Path | None:
    """Give the library inside the carrier's wheel, which lies beside the package; None without that wheel."""
    package = importlib.util.find_spec(CARRIER)
    for folder in (package.submodule_search_locations if package else None) or ():
        for found in sorted(Path(folder).with_name(f"{CARRIER}.libs").glob("libgomp*")):
            return found
    return None
