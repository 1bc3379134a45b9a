"""The file of the database is gone or another one: the API says so, doctor too, and neither makes an empty one."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.api.__main__ import main
from app.api.health import FRESH_SECONDS
from app.cli import server_checks
from app.cli.connection import Address
from app.cli.findings import Finding
from app.control.opening import open_agent
from tests.migrated import migrate
from tests.served import Served


def found_by_doctor(served: Served) -> Finding:
    found = server_checks.check_server(Address(served.url, served.admin, "environment"))
    return next(finding for finding in found if finding.part == "database")


def file_of(served: Served) -> Path:
    assert served.yard.store.file is not None
    return served.yard.store.file.path


def test_while_the_file_is_gone_every_call_says_why_and_with_the_file_all_is_well(served_on_sqlite: Served) -> None:
    path = file_of(served_on_sqlite)
    away = path.rename(path.with_name("away"))
    with served_on_sqlite.http() as http:
        for answer in (http.get("/v1/batches"), http.get("/v1/workers"), http.post("/v1/tokens", json={"name": "n"})):
            assert answer.status_code == 503
            assert "the database file was removed while gpuyard ran; stop gpuyard" in answer.json()["error"]["message"]
            assert str(path) not in answer.text
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert "was removed" in ready.json()["parts"]["database"]
        told = found_by_doctor(served_on_sqlite)
        assert (told.level, told.text) == ("red", "the database file was removed while gpuyard ran")
        assert "put the file back" in told.do
        assert not path.exists()
        away.rename(path)
        time.sleep(FRESH_SECONDS)  # so long the last look stands
        assert http.get("/readyz").status_code == 200
        assert http.get("/v1/batches").status_code == 200


def test_another_file_in_its_place_is_not_served(served_on_sqlite: Served, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    migrate(f"sqlite:///{other}")
    other.replace(file_of(served_on_sqlite))
    with served_on_sqlite.http() as http:
        assert http.get("/readyz").status_code == 503
        assert "was replaced" in http.get("/v1/batches").json()["error"]["message"]


@pytest.mark.parametrize("verb", ["serve", "serve --migrate", "migrate", "check", "control"])
@pytest.mark.parametrize("state", ["gone", "empty", "garbage", "another program's"])
def test_no_process_starts_on_what_is_no_database_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str, state: str
) -> None:
    path = tmp_path / "gpuyard.db"
    migrate(f"sqlite:///{path}")
    path.unlink()
    if state == "empty":
        path.touch()
    elif state == "garbage":
        path.write_bytes(os.urandom(8192))
    elif state == "another program's":
        _make_another_programs(path)
    before = path.read_bytes() if path.exists() else None
    says, names = {
        "gone": ("is gone", "gpuyard migrate --new-database"),
        "empty": ("0 bytes", "gpuyard migrate --new-database"),
        "garbage": ("damaged, or is no SQLite database", "gpuyard restore"),
        "another program's": ("belongs to another program", "GPUYARD_DATABASE_URL"),
    }[state]
    if verb == "control":
        monkeypatch.setenv("GPUYARD_DATA_DIR", str(tmp_path))
        with pytest.raises(SystemExit) as ended:
            open_agent()
        said = str(ended.value)
    else:
        assert main([*verb.split(), "--data-dir", str(tmp_path), "--port", "0"]) == 1
        told = capsys.readouterr()
        said = told.out or told.err.splitlines()[-1]
    assert says in said
    assert names in said
    assert str(path) in said
    assert (path.read_bytes() if path.exists() else None) == before


def test_told_to_begin_again_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpuyard.db"
    migrate(f"sqlite:///{path}")
    path.unlink()
    assert main(["migrate", "--new-database", "--data-dir", str(tmp_path)]) == 0
    assert "the schema is at revision" in capsys.readouterr().out
    assert main(["check", "--data-dir", str(tmp_path)]) == 0


@pytest.mark.parametrize("state", ["gone", "garbage"])
def test_doctor_on_the_machine_itself_names_the_file_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    path = tmp_path / "gpuyard.db"
    migrate(f"sqlite:///{path}")
    path.unlink()
    if state == "garbage":
        path.write_bytes(os.urandom(8192))
    monkeypatch.setenv("GPUYARD_DATA_DIR", str(tmp_path))
    told = next(finding for finding in server_checks.check_own_server_part() if finding.part == "database")
    assert told.level == "red"
    assert str(path) in told.text
    assert "gpuyard restore" in told.do
    assert "start the database" not in told.do


def _make_another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE moz_places (id INTEGER)")
