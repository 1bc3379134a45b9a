from pathlib import Path

import pytest

from app.local import private_files
from app.local.keys import Keys


def test_a_file_with_keys_is_its_owners_alone_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys.json"
    private_files.write(path, {"api_key": "gk-1"})
    private_files.write(path, {"api_key": "gk-2"})

    assert private_files.read(path) == {"api_key": "gk-2"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in path.parent.iterdir()] == ["keys.json"]


def test_no_file_is_nothing_and_another_file_is_an_error(tmp_path: Path) -> None:
    assert private_files.read(tmp_path / "none") == {}
    (tmp_path / "list").write_text("[]")
    with pytest.raises(ValueError, match="JSON object"):
        private_files.read(tmp_path / "list")


def test_keys_are_made_once_and_kept(tmp_path: Path) -> None:
    first = Keys(tmp_path / "keys.json")
    admin, worker = first.admin(), first.worker(lambda: "gk-worker")

    again = Keys(tmp_path / "keys.json")
    assert (again.admin(), again.worker(lambda: "gk-other")) == (admin, worker)
    assert admin.startswith("gk-")
    assert len(admin) > 40


def test_another_admin_key_takes_the_workers_key_with_it(tmp_path: Path) -> None:
    Keys(tmp_path / "keys.json", admin="gk-a").worker(lambda: "gk-old")

    assert Keys(tmp_path / "keys.json", admin="gk-b").worker(lambda: "gk-new") == "gk-new"
    assert Keys(tmp_path / "keys.json", admin="gk-b").admin() == "gk-b"
