"""What is ours is its owner's alone, and what is not ours is left as it is."""

import os
from pathlib import Path

import pytest

from app import private
from app.control.place import Place
from app.db.store import Store
from app.services.opening import close_to_others
from app.worker.state import StateDir
from config.settings import ServerSettings
from tests.migrated import migrate

OURS = ("gpuyard.db*", "logs")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def old_folder(folder: Path) -> Path:
    """A data folder as versions before this one made it."""
    folder.mkdir(mode=0o755)
    (folder / "logs").mkdir(mode=0o755)
    for name in ("gpuyard.db", "gpuyard.db-wal", "gpuyard.db-shm", "logs/api.log"):
        (folder / name).touch()
        (folder / name).chmod(0o644)
    return folder


def test_a_folder_that_is_ours_is_closed_with_all_in_it_and_once(tmp_path: Path) -> None:
    folder = old_folder(tmp_path / "data")
    closed = private.keep(folder, ours=OURS)
    assert {Path(path).name for path in closed} == {
        *("data", "logs", "api.log", "gpuyard.db", "gpuyard.db-wal", "gpuyard.db-shm")
    }
    assert (mode(folder), mode(folder / "logs")) == (0o700, 0o700)
    assert {mode(path) for path in folder.rglob("*.*")} == {0o600}
    assert private.keep(folder, ours=OURS) == []


def test_a_missing_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    assert private.keep(tmp_path / "a" / "data", ours=OURS) == []
    assert mode(tmp_path / "a" / "data") == 0o700


@pytest.mark.parametrize("name", [".bashrc", "website", "notes.txt"])
def test_a_folder_that_holds_something_else_keeps_its_mode(tmp_path: Path, name: str) -> None:
    """A home folder, /tmp, or a folder of several programs."""
    folder = old_folder(tmp_path / "shared")
    (folder / name).touch()
    (folder / name).chmod(0o644)
    closed = private.keep(folder, ours=OURS)
    assert str(folder) not in closed
    assert mode(folder) == 0o755
    assert mode(folder / name) == 0o644
    assert mode(folder / "gpuyard.db") == 0o600


def test_a_disk_of_its_own_is_no_shared_folder(tmp_path: Path) -> None:
    folder = old_folder(tmp_path / "disk")
    (folder / "lost+found").mkdir(mode=0o700)
    private.keep(folder, ours=OURS)
    assert mode(folder) == 0o700


def test_a_link_leads_to_nothing_that_is_ours(tmp_path: Path) -> None:
    folder = old_folder(tmp_path / "data")
    other = tmp_path / "other"
    other.touch()
    other.chmod(0o644)
    (folder / "gpuyard.db-journal").symlink_to(other)
    private.keep(folder, ours=OURS)
    assert mode(other) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_what_another_user_owns_is_left(tmp_path: Path) -> None:
    folder = old_folder(tmp_path / "data")
    os.chown(folder, 65534, 65534)
    os.chown(folder / "gpuyard.db", 65534, 65534)
    private.keep(folder, ours=OURS)
    assert (mode(folder), mode(folder / "gpuyard.db")) == (0o755, 0o644)


def test_a_process_says_in_one_line_what_it_has_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = old_folder(tmp_path / "data")
    elsewhere = tmp_path / "elsewhere.db"
    migrate(f"sqlite:///{elsewhere}")
    elsewhere.chmod(0o644)
    store = Store(f"sqlite:///{elsewhere}")
    for _ in range(2):
        close_to_others(ServerSettings(data_dir=folder), store)
    store.close()
    (line,) = [record.getMessage() for record in caplog.records if "closed to all but this user" in record.getMessage()]
    assert str(folder) in line
    assert str(elsewhere) in line
    assert mode(elsewhere) == 0o600


def test_whatever_starts_first_makes_a_folder_that_stays_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A second start finds nothing to close."""
    folder = tmp_path / "data"
    settings = ServerSettings(data_dir=folder)
    store = Store(settings.database_url.get_secret_value())
    close_to_others(settings, store)
    migrate(settings.database_url.get_secret_value())
    Place(folder / "control").close()
    with store.read():
        assert mode(folder / "gpuyard.db-wal") == 0o600
        assert mode(folder / "gpuyard.db-shm") == 0o600
        close_to_others(settings, store)
    store.close()
    assert mode(folder) == 0o700
    assert "closed to all" not in caplog.text


def test_a_worker_closes_its_state_and_no_folder_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "worker"
    for _ in range(2):
        StateDir(folder).close()
    assert mode(folder) == 0o700
    assert "closed to all" not in caplog.text
    folder.chmod(0o755)
    StateDir(folder).close()
    assert mode(folder) == 0o700
    assert caplog.text.count("closed to all") == 1
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "of another program").touch()
    StateDir(shared).close()
    assert mode(shared) == 0o755
    assert mode(shared / "spool") == 0o700
