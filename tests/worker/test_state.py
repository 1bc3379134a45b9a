"""A worker's identity outlives its process, and only one process lives in it (PROTOCOL 3, R-29)."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.schemas.workers import MAX_STARTS
from app.worker.state import StateDir, StateDirBusy


def test_the_install_id_stays_and_the_boot_id_is_new(tmp_path: Path) -> None:
    with StateDir(tmp_path / "state") as first:
        pass
    with StateDir(tmp_path / "state") as second:
        assert second.install_id == first.install_id
        assert second.boot_id != first.boot_id


def test_each_start_is_counted(tmp_path: Path) -> None:
    found = []
    for _ in range(3):
        with StateDir(tmp_path) as state:
            found.append(state.starts)
    assert found == [1, 2, 3]


@pytest.mark.parametrize(
    ("kept", "next_one"),
    [(b"", 1), (b"\xff", 1), (b"-7", 1), (b"9" * 5000, 1), (str(MAX_STARTS).encode(), MAX_STARTS)],
)
def test_whatever_the_count_holds_the_worker_starts(tmp_path: Path, kept: bytes, next_one: int) -> None:
    (tmp_path / "starts").write_bytes(kept)
    with StateDir(tmp_path) as state:
        assert state.starts == next_one


def test_its_files_are_the_owners_alone(tmp_path: Path) -> None:
    with StateDir(tmp_path / "state") as state:
        assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((state.path / "install_id").stat().st_mode) == 0o600


def test_a_second_process_is_turned_away(tmp_path: Path) -> None:
    with StateDir(tmp_path), pytest.raises(StateDirBusy, match="GPUYARD_STATE_DIR"):
        StateDir(tmp_path)


def test_a_process_that_died_leaves_no_lock_behind(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; from app.worker.state import StateDir;"
        "held = StateDir(pathlib.Path(sys.argv[1])); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 9
    StateDir(tmp_path).close()


@pytest.mark.parametrize("left", [b"", b"\n", b"\xff\xfe\x00", b"two words", b"x" * 5000])
def test_an_install_id_that_a_full_or_broken_disk_left_is_made_anew(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "install_id").write_bytes(left)
    with StateDir(tmp_path) as state:
        assert state.install_id.startswith("inst_")
