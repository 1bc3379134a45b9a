"""What is installed from the wheel: all that the code opens, and what an operator without a clone needs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from app.dashboard import assets

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "tasks", "executors", "config")


def build(source: Path, folder: Path) -> Path:
    """Build it as `make wheel` does."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("gpuyard-*-py3-none-any.whl")
    return found


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return names_in(wheel)


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lies beside other packages once it is installed."""
    folder = tmp_path_factory.mktemp("site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(unpacked: Path, home: Path, *arguments: str) -> str:
    """Run Python on what was unpacked, in a folder that is no clone; gives what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment | {"PYTHONPATH": str(unpacked), "GPUYARD_DATA_DIR": str(home / "data")},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_every_file_that_lies_in_our_packages(names: set[str]) -> None:
    """Migrations, their template, the page: whatever the code opens lies beside it."""
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in ours if not name.endswith(".py")} > {"app/db/migrations/script.py.mako"}
    assert ours - names == set()


def test_it_brings_our_packages_and_no_other(names: set[str]) -> None:
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.startswith("gpuyard-")} == set(PACKAGES)


def test_it_brings_units_dashboard_and_alert_rules_for_who_has_no_clone(names: set[str]) -> None:
    shared = {name.partition("/data/share/gpuyard/")[2] for name in names if "/data/share/" in name}
    wanted = {
        f"{folder}/{path.name}"
        for folder in ("systemd", "grafana", "prometheus")
        for path in (ROOT / "docs" / "operate" / folder).iterdir()
    }
    assert shared == wanted


def test_what_the_images_copy_is_enough_to_build_the_same(names: set[str], tmp_path: Path) -> None:
    """They build it from the folders that .dockerignore lets through."""
    let_through = re.findall(r"^!([\w./]+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    asked = {name for names in copied for name in names.split()}
    for path in (Path(name) for name in let_through if asked & {name, name.partition("/")[0]}):
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, tmp_path / path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / path, tmp_path / path)
    assert names_in(build(tmp_path, tmp_path / "dist")) == names


@pytest.mark.long
def test_what_it_holds_migrates_a_database_outside_of_a_clone(unpacked: Path, tmp_path: Path) -> None:
    assert "the schema is at revision" in run(unpacked, tmp_path, "-m", "app.api", "migrate")


def test_what_it_holds_has_the_whole_page(unpacked: Path, tmp_path: Path) -> None:
    script = "from app.dashboard import assets; print(assets.FOLDER, *sorted(assets.all_assets()))"
    folder, *found = run(unpacked, tmp_path, "-c", script).split()
    assert Path(folder).is_relative_to(unpacked)
    assert found == sorted(assets.all_assets())
