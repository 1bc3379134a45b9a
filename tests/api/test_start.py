"""Starting the API as a process: what it makes, what it refuses, and what it says (DESIGN 2)."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlmodel import select

from app.api.__main__ import main
from app.api.main import begin
from app.api.serving import check_certificate
from app.blobs.local import LocalBlobs
from app.control.opening import open_agent
from app.db import schema, tokens
from app.db.store import Store
from app.db.tables import ApiToken, Org, Pool
from app.services import beginnings
from app.services.opening import open_yard
from config.errors import SettingsError
from config.settings import ServerSettings
from tests.databases import Databases
from tests.migrated import migrate

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
CERTIFICATE = ROOT / "tests" / "fakes" / "tls" / "cert.pem"


def gpuyard(
    database_url: str, folder: Path, *arguments: str, files: int | None = None, **more: str
) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")}
    environment |= {"GPUYARD_DATABASE_URL": database_url, "GPUYARD_DATA_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "app.cli.main", *arguments]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    return subprocess.Popen(
        command,
        env=environment | more,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(database_url: str, folder: Path, *arguments: str, **more: str) -> tuple[int, str, str]:
    process = gpuyard(database_url, folder, *arguments, **more)
    out, err = process.communicate(timeout=START_SECONDS)
    return process.returncode, out, err


@contextmanager
def serve(
    database_url: str, folder: Path, *arguments: str, files: int | None = None, **more: str
) -> Iterator[tuple[str, list[str]]]:
    """Run `gpuyard serve` on a free port; gives its URL and the lines it printed, on both streams."""
    process = gpuyard(database_url, folder, "serve", "--port", "0", *arguments, files=files, **more)
    try:
        assert process.stderr is not None
        deadline = time.monotonic() + START_SECONDS
        url = None
        while url is None:
            assert time.monotonic() < deadline
            line = process.stderr.readline()
            assert line, f"the API ended at its start: {process.stdout.read() if process.stdout else ''}"
            found = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            url = found[1] if found else None
        printed: list[str] = []
        yield url, printed
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=START_SECONDS)
        assert process.returncode == 0
    printed.extend([*out.splitlines(), *err.splitlines()])


def test_migrate_makes_the_schema_and_init_prints_the_first_key_once(
    sqlite_databases: Databases, tmp_path: Path
) -> None:
    url = sqlite_databases.empty()
    code, out, _ = run(url, tmp_path, "migrate")
    assert (code, out.strip()) == (0, f"gpuyard: the schema is at revision {schema.head()}")
    with serve(url, tmp_path, "--init") as (_, printed):
        pass
    key = re.search(r"gk-\S{43}", "\n".join(printed))
    assert key is not None
    with serve(url, tmp_path, "--init") as (base, again):
        answer = httpx.get(f"{base}/v1/tokens", headers={"authorization": f"Bearer {key[0]}"})
        assert [token["name"] for token in answer.json()["data"]] == [beginnings.FIRST_KEY]
        assert answer.json()["data"][0]["last_used_at"] is None
    assert "gk-" not in "\n".join(again)
    store = Store(url)
    with store.read() as session:
        assert session.exec(select(Org.operator)).all() == [True]
    store.close()


def test_the_last_use_of_a_key_is_stored_when_the_server_stops(sqlite_databases: Databases, tmp_path: Path) -> None:
    url, auth = sqlite_databases.copy_of(migrate), {"authorization": "Bearer gk-boot"}
    for expected in (False, True):
        with serve(url, tmp_path, GPUYARD_BOOTSTRAP_TOKEN="gk-boot") as (base, _):  # noqa: S106 - a test's key
            (token,) = httpx.get(f"{base}/v1/tokens", headers=auth).json()["data"]
            assert (token["last_used_at"] is not None) is expected


@pytest.mark.parametrize("broken", ["empty", "newer"])
def test_another_schema_is_not_served_and_the_command_is_named(
    sqlite_databases: Databases, tmp_path: Path, broken: str
) -> None:
    url = sqlite_databases.empty() if broken == "empty" else sqlite_databases.copy_of(migrate)
    if broken == "newer":
        store = Store(url)
        with store.begin() as session:
            session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        store.close()
    code, _, err = run(url, tmp_path, "serve", "--port", "0")
    assert code == 1
    assert err.splitlines()[-1].startswith("gpuyard: ")
    assert "Traceback" not in err
    assert ("gpuyard migrate" if broken == "empty" else "the newer wheel") in err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("no url", "GPUYARD_DATABASE_URL is no URL"),
        ("mysql://u:secret@h/d", "'mysql' is not supported"),
        ("sqlite:////proc/none/gpuyard.db", "no folder for the database: /proc/none: No such file"),
        ("sqlite:////etc/hosts/gpuyard.db", "no folder for the database: /etc/hosts: it is no folder"),
        ("postgresql://u:secret@127.0.0.1:1/d", "does not answer"),
        ("damaged", "damaged"),
    ],
)
@pytest.mark.parametrize("verb", ["migrate", "serve", "check"])
def test_a_database_that_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, says: str, verb: str
) -> None:
    if url == "damaged":
        (tmp_path / "gpuyard.db").write_bytes(b"no database" * 1000)
        url = f"sqlite:///{tmp_path}/gpuyard.db"
    monkeypatch.setenv("GPUYARD_DATABASE_URL", url)
    assert main([verb, "--data-dir", str(tmp_path), "--port", "0"]) == 1
    told = capsys.readouterr()
    said = told.out if verb == "check" and told.out else told.err.splitlines(keepends=True)[-1]
    assert said.count("\n") == 1
    assert "Traceback" not in told.err
    assert says in said
    assert "secret" not in said
    assert "Errno" not in said


def test_a_setting_that_cannot_be_is_one_line(sqlite_databases: Databases, tmp_path: Path) -> None:
    code, _, err = run(sqlite_databases.empty(), tmp_path, "serve", "--host", "0.0.0.0")  # noqa: S104 - refused
    assert code == 1
    assert "tls" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("broken", ["no-file", "another-key"])
def test_a_certificate_that_cannot_be_used_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    key = CERTIFICATE.with_name("key.pem") if broken == "no-file" else tmp_path / "key.pem"
    certificate = CERTIFICATE if broken == "another-key" else tmp_path / "cert.pem"
    (tmp_path / "key.pem").write_text("no key")
    settings = ServerSettings(data_dir=tmp_path, tls_cert=certificate, tls_key=key)
    with pytest.raises(SettingsError, match=f"{certificate}.*{key} cannot be used"):
        check_certificate(settings)
    check_certificate(ServerSettings(data_dir=tmp_path, tls_cert=CERTIFICATE, tls_key=CERTIFICATE.with_name("key.pem")))


@pytest.mark.parametrize("starts", ["serve", "control worker"])
def test_contents_of_another_installation_end_the_start_with_the_reason(
    sqlite_databases: Databases,
    tmp_path: Path,
    starts: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    LocalBlobs(tmp_path / "blobs").mark("ab" * 16)
    monkeypatch.setenv("GPUYARD_DATABASE_URL", sqlite_databases.copy_of(migrate))
    monkeypatch.setenv("GPUYARD_DATA_DIR", str(tmp_path))
    if starts == "serve":
        assert main(["serve", "--port", "0"]) == 1
        err = capsys.readouterr().err.splitlines()[-1]
    else:
        with pytest.raises(SystemExit) as ended:
            open_agent()
        err = str(ended.value)
    assert err.startswith(f"gpuyard: the store of contents has the id {'ab' * 16} and this database's has ")
    assert "GPUYARD_DATA_DIR" in err


def test_a_bootstrap_key_counts_only_while_there_is_none(database_url: str, tmp_path: Path) -> None:
    migrate(database_url)
    for key in ("gk-first", "gk-second"):
        settings = ServerSettings(database_url=database_url, data_dir=tmp_path, bootstrap_token=key)
        yard = open_yard(settings)
        begin(yard, settings)
        with yard.store.read() as session:
            assert len(session.exec(select(Org)).all()) == 1
        made = beginnings.first_key(yard, "gk-third")
        assert made is False
        yard.store.close()


def test_a_workers_key_of_the_settings_is_made_once_and_revoked_for_good(database_url: str, tmp_path: Path) -> None:
    migrate(database_url)

    def start(worker_key: str) -> dict[str, tuple[list[str], bool]]:
        settings = ServerSettings(
            database_url=database_url,
            data_dir=tmp_path,
            bootstrap_token="gk-admin",  # noqa: S106 - a test's key
            bootstrap_worker_token=worker_key,
        )
        yard = open_yard(settings)
        begin(yard, settings)
        with yard.store.begin() as session:
            found = {token.prefix: token for token in session.exec(select(ApiToken)).all()}
            shown = {prefix: (token.scopes, token.revoked_at is None) for prefix, token in found.items()}
            tokens.revoke(session, found["gk-first"].id, org_id=found["gk-first"].org_id, now=yard.store.now(session))
        yard.store.close()
        return shown

    made = {"gk-admin": (["admin", "worker"], True), "gk-first": (["worker"], True)}
    assert start("gk-first") == made
    revoked = made | {"gk-first": (["worker"], False)}
    assert start("gk-first") == revoked
    assert start("gk-next") == revoked | {"gk-next": (["worker"], True)}


def test_the_pools_of_the_settings_are_made_and_what_they_leave_out_stays(database_url: str, tmp_path: Path) -> None:
    migrate(database_url)

    def start(**pools: dict[str, object]) -> dict[str, Pool]:
        settings = ServerSettings.model_validate({"database_url": database_url, "data_dir": tmp_path, "pools": pools})
        yard = open_yard(settings)
        begin(yard, settings)
        assert yard.default_pool == ("big" if pools["big"].get("default") else "gpu")
        with yard.store.read() as session:
            found = {pool.name: pool for pool in session.exec(select(Pool)).all()}
        yard.store.close()
        return found

    first = start(big={"batches": 2, "max_load": 1.5})
    assert set(first) == {"gpu", "big"}
    assert (first["big"].slots, first["big"].max_load, first["gpu"].is_default) == ({"batches": 2}, 1.5, True)
    second = start(big={"default": True, "min_memory_gb": 4})
    assert (second["big"].max_load, second["big"].min_memory_gb) == (1.5, 4)
    assert {name: pool.is_default for name, pool in second.items()} == {"gpu": False, "big": True}


def test_connections_that_send_nothing_give_way_when_all_files_are_in_use(
    sqlite_databases: Databases, tmp_path: Path
) -> None:
    files = 240
    with serve(sqlite_databases.copy_of(migrate), tmp_path, files=files) as (url, printed), ExitStack() as stack:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(2 * files):
            held = stack.enter_context(socket.create_connection((host, int(port)), timeout=START_SECONDS))
            held.sendall(b"POST / HT")
        for _ in range(3):
            assert httpx.get(f"{url}/readyz", timeout=START_SECONDS).status_code == 200
    assert "Traceback" not in "\n".join(printed)
    assert len([line for line in printed if "waited longest" in line]) == 1
