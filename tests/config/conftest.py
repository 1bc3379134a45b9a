"""Settings are read from the process's environment and home: each test has its own, empty."""

import os
from pathlib import Path

import pytest

from config import places


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No GPUYARD_ variable, and all usual places inside `tmp_path`."""
    for name in list(os.environ):
        if name.startswith("GPUYARD_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(places, "data_dir", lambda: tmp_path / "data")
    monkeypatch.setattr(places, "config_files", lambda: (tmp_path / "etc.toml", tmp_path / "home.toml"))
    return tmp_path
