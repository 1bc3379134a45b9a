"""`gpuyard doctor`: each part that does not work is one line, and a red one says what to do."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.cli import machine_checks, server_checks
from app.cli.connection import Address
from app.cli.findings import Finding
from tests.commands import Commands
from tests.fakes.public_api import FakePublicApi, Says
from tests.fakes.runtime_process import RuntimeProcess, runtime_server
from tests.installation import Installation

__all__ = ["runtime_server"]

READY = {"ready": True, "parts": {"database": "ok", "schema": "ok", "blobs": "ok"}, "sweep_age_seconds": {"requeue": 1}}
WORKER = {"name": "w1", "no_lease": None}


def asked(api: FakePublicApi, **more: Says) -> dict[str, Finding]:
    """What doctor finds out about a server that is well but for `more`."""
    answers = {
        "readyz": Says(READY),
        "workers": Says({"data": [WORKER], "has_more": False}),
    } | more
    api.says("GET /readyz", answers["readyz"])
    api.says("GET /v1/workers", answers["workers"])
    found = server_checks.check_server(Address(api.url, "gk-any", "environment"))
    return {finding.part: finding for finding in found}


@pytest.mark.e2e
@pytest.mark.timeout(180)
def test_a_whole_installation_is_well(
    yard: Commands, served: Installation, until: Callable[[Callable[[], object]], None]
) -> None:
    # Beat's first tick comes a period after its start.
    until(lambda: httpx.get(served.ready()["url"] + "/readyz").json()["sweep_age_seconds"])
    done = yard.run("doctor", "--json", GPUYARD_RUNTIME="fake", PYTHONWARNINGS="error")

    found = {finding["part"]: finding["level"] for finding in done.document["findings"]}
    parts = ("app", "server", "database", "schema", "blobs", "sweeps", "key", "workers", "clock", "broker", "runtime")
    assert found == dict.fromkeys(parts, "ok"), done.out
    assert (done.code, done.document["healthy"]) == (0, True)


def test_a_machine_without_server_packages_is_looked_at_all_the_same(tmp_path: Path) -> None:
    hidden = ("fastapi", "starlette", "uvicorn", "sqlmodel", "sqlalchemy", "alembic")
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({hidden!r})\n")
    machine = Commands(tmp_path, {"GPUYARD_SERVER_URL": "http://127.0.0.1:1", "GPUYARD_API_KEY": "gk-any"})
    path = f"{tmp_path}:{machine.environment()['PYTHONPATH']}"
    done = machine.run("doctor", GPUYARD_RUNTIME_URL="fake:?models=m", PYTHONPATH=path)

    assert done.code == 1
    assert "red   server    http://127.0.0.1:1 does not answer" in done.out
    assert "ok    runtime   fake@fake:?models=m serves m" in done.out
    assert done.err == ""


def test_a_database_without_a_schema_is_red_though_no_server_runs(tmp_path: Path) -> None:
    machine = Commands(tmp_path, {"GPUYARD_DATABASE_URL": f"sqlite:///{tmp_path}/gpuyard.db"})
    done = machine.run("doctor", "--json", GPUYARD_RUNTIME="fake")

    found = {finding["part"]: finding for finding in done.document["findings"]}
    assert (found["database"]["level"], found["schema"]["level"]) == ("ok", "red")
    assert "gpuyard migrate" in found["schema"]["do"]
    assert all(finding["do"] for finding in found.values() if finding["level"] == "red")


def test_a_transaction_that_holds_events_back_is_named_with_what_ends_it(
    api: FakePublicApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"events": "a transaction of the database process 4711 has been open for 95 s: streams get nothing"}
    named = {"events": "a transaction of pid 4711 (psql, user bob, idle in transaction) has been open for 96 s"}
    monkeypatch.setattr(server_checks, "_no_own_part", lambda: "this machine has no database of its own")
    elsewhere = asked(api, readyz=Says(READY | {"degraded": held}))["events"]
    assert (elsewhere.level, elsewhere.text) == ("red", held["events"])
    assert "pg_terminate_backend" in elsewhere.do

    monkeypatch.setattr(server_checks, "_no_own_part", lambda: None)
    monkeypatch.setattr(server_checks, "_own_part", lambda: READY | {"degraded": named})
    here = asked(api, readyz=Says(READY | {"degraded": held}))["events"]
    assert here.text == named["events"]


def test_a_disk_that_is_full_is_red_and_says_what_goes_on(api: FakePublicApi) -> None:
    parts = READY["parts"] | {"blobs": "the disk for contents is full"}
    degraded = {"blobs": "uploads fail; reads and running batches go on"}
    found = asked(api, readyz=Says(READY | {"parts": parts, "degraded": degraded}))["blobs"]
    assert found.level == "red"
    assert found.text == "the disk for contents is full: uploads fail; reads and running batches go on"


def test_parts_of_the_server_are_what_it_says_of_them(api: FakePublicApi) -> None:
    parts = {"database": "ok", "schema": "it is at 0001, not 0002", "blobs": "disk full"}
    found = asked(api, readyz=Says({"ready": False, "parts": parts}, 503))

    assert [found[part].level for part in parts] == ["ok", "red", "red"]
    assert found["schema"].do == "gpuyard migrate"
    assert found["sweeps"].level == "warn"


def test_a_proxy_of_the_environment_is_asked_no_more_than_by_other_commands(
    api: FakePublicApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert asked(api)["server"].level == "ok"


def test_something_else_at_the_url_is_no_server(api: FakePublicApi) -> None:
    found = asked(api, readyz=Says(b"<html>"))

    assert list(found) == ["server"]
    assert found["server"].level == "red"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_an_api_behind_it_is_no_wrong_url(api: FakePublicApi, told: Commands, status: int) -> None:
    api.says("GET /readyz", Says(b"<html>", status))
    done = told.run("doctor", "--json", GPUYARD_RUNTIME="fake")

    found = {finding["part"]: finding for finding in done.document["findings"]}
    assert found["server"]["level"] == "red"
    assert found["server"]["text"] == f"a proxy answers at {api.url}, and no API behind it (HTTP {status})"
    assert "GPUYARD_SERVER_URL" not in found["server"]["do"]
    assert {"database", "schema", "blobs"} < found.keys()


@pytest.mark.parametrize(
    ("status", "level"), [(200, "ok"), (403, "ok"), (401, "red")], ids=["known", "worker's key", "unknown"]
)
def test_a_key_is_red_only_where_nobody_knows_it(api: FakePublicApi, status: int, level: str) -> None:
    body = {"data": [], "has_more": False} if status == 200 else {"error": {"message": "no"}}

    assert asked(api, workers=Says(body, status))["key"].level == level


@pytest.mark.parametrize(
    ("workers", "level"),
    [
        ([], "warn"),
        ([WORKER], "ok"),
        ([{"name": "w1", "no_lease": "unreachable"}], "warn"),
        ([{"name": "w1", "no_lease": "memory"}, {"name": "w2", "no_lease": "nothing"}], "ok"),
    ],
)
def test_workers_warn_where_none_can_take_work(api: FakePublicApi, workers: list[object], level: str) -> None:
    assert asked(api, workers=Says({"data": workers, "has_more": False}))["workers"].level == level


@pytest.mark.parametrize(("ours", "level"), [(0, "ok"), (0.9, "ok"), (90, "warn"), (-90, "warn")])
def test_another_time_than_the_server_s_is_a_note(ours: float, level: str) -> None:
    # RFC 9110's own example.
    assert server_checks.clock("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 + ours).level == level


def test_a_server_without_a_date_is_a_note() -> None:
    assert server_checks.clock(None, 0).level == "warn"


@pytest.mark.parametrize("name", ["app/__init__.py", "app.py", "tasks.py", "config/__init__.py"])
def test_a_folder_that_hides_our_package_is_red(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()

    assert machine_checks.check_app(tmp_path).level == "red"


def test_a_folder_with_a_config_of_its_own_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()

    assert machine_checks.check_app(tmp_path).level == "ok"
    assert machine_checks.check_app(machine_checks.ROOT).level == "ok"


@pytest.mark.parametrize(
    ("url", "level"),
    [("fake:?models=m", "ok"), ("fake:?dead=1", "red")],
    ids=["answers", "dead"],
)
def test_a_runtime_that_was_asked_for_must_answer(monkeypatch: pytest.MonkeyPatch, url: str, level: str) -> None:
    monkeypatch.setenv("GPUYARD_RUNTIME_URL", url)

    assert [finding.level for finding in machine_checks.check_runtimes()] == [level]


def test_a_runtime_that_wants_a_key_is_said_to_and_where_the_key_belongs(
    monkeypatch: pytest.MonkeyPatch, runtime_server: Callable[..., RuntimeProcess]
) -> None:
    monkeypatch.setenv("GPUYARD_RUNTIME_URL", runtime_server("--api-key", "secret").url)
    [found] = machine_checks.check_runtimes()
    assert "is not alive: GET /v1/models was answered 401" in found.text
    assert "GPUYARD_RUNTIME_API_KEY" in found.text
    assert "GPUYARD_RUNTIME_API_KEY" in found.do
    monkeypatch.setenv("GPUYARD_RUNTIME_API_KEY", "secret")
    assert [finding.level for finding in machine_checks.check_runtimes()] == ["ok"]


def test_a_runtime_that_nobody_knows_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_RUNTIME", "nonsense")
    [found] = machine_checks.check_runtimes()

    assert (found.level, bool(found.do)) == ("red", True)


def test_a_broker_that_does_not_answer_is_red_and_its_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_BROKER_URL", "redis://:secret@127.0.0.1:1/0")
    found = machine_checks.check_broker()

    assert found.level == "red"
    assert "secret" not in found.text
