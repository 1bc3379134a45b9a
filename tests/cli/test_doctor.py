"""`gpuyard doctor`: each part that does not work is one line, and a red one says what to do."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from redis import Redis

from app.blobs.local import LocalBlobs
from app.cli import machine_checks, server_checks
from app.cli.connection import Address
from app.cli.findings import Finding
from app.db.store import Store
from app.local.broker import local_broker
from app.services import files
from tests.commands import Commands
from tests.damaged import WAYS, damage
from tests.fakes.public_api import FakePublicApi, Says, batch
from tests.fakes.runtime_process import RuntimeProcess, runtime_server
from tests.installation import Installation
from tests.process_nodes import BrokerContainer
from tests.yards import USER, input_file, new_yard

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
    assert (found["database"]["level"], found["schema"]["level"]) == ("red", "red")
    assert "gpuyard migrate" in found["database"]["do"]
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


def test_a_sweep_whose_pass_hangs_is_red_and_says_since_when(api: FakePublicApi) -> None:
    ready = READY | {"hanging_sweep_seconds": {"retention": 754.2}}
    found = asked(api, readyz=Says(ready))["sweeps"]

    assert (found.level, found.text) == ("red", "a pass of retention began 754 s ago and has not ended")
    assert "disk or file server" in (found.do or "")


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


def test_what_a_key_may_not_see_is_named_with_what_it_has(api: FakePublicApi) -> None:
    message = "this key has the scope metrics, and this needs read or admin"
    found = asked(api, workers=Says({"error": {"message": message}}, 403))["workers"]

    assert (found.level, found.text) == ("warn", f"workers, batches and pools were not looked at: {message}")
    assert "GPUYARD_API_KEY" in found.do


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


def test_a_batch_that_waits_for_its_contents_is_named(api: FakePublicApi) -> None:
    stuck = batch("finalizing", gpuyard={"state": "finalizing", "waiting_reason": "rows 4-7 are missing"})
    waits = batch("in_progress", gpuyard={"state": "validated", "waiting_reason": "no worker"})
    api.says("GET /v1/batches", Says({"data": [waits, stuck], "has_more": False}))
    found = asked(api)["contents"]

    assert (found.level, found.text) == ("warn", "batch_b waits: rows 4-7 are missing")
    assert found.do


def test_a_batch_with_a_damaged_file_is_named(api: FakePublicApi) -> None:
    damaged = batch("completed", gpuyard={"state": "completed", "damaged": "the output file file-1: it is gone"})
    api.says("GET /v1/batches", Says({"data": [damaged], "has_more": False}))
    found = asked(api)["contents"]

    assert (found.level, found.text) == ("red", "batch_b: the output file file-1: it is gone")
    assert "doctor --contents" in found.do


def test_a_pool_whose_timing_is_read_otherwise_than_it_was_stored_is_named(api: FakePublicApi) -> None:
    rungs = {"renew_seconds": 10.0, "grace_seconds": 25.0, "toleration_seconds": 60.0}
    old = {"name": "old", "timing": rungs, "out_of_bounds": {"grace_seconds": "20.0"}}
    good = {"name": "gpu", "timing": rungs, "out_of_bounds": {}}
    api.says("GET /v1/pools", Says({"data": [good, old]}))
    found = asked(api)["pools"]
    assert (found.level, found.text) == (
        "warn",
        "the timing of pool old is out of bounds: grace_seconds 20.0 is read as 25",
    )
    assert found.do == "gpuyard pool set old --timing renew=10,grace=25,toleration=60"


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


def test_a_broker_that_answers_and_takes_no_messages_is_red_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker = BrokerContainer(local_broker(tmp_path / "data"))
    broker.start()
    monkeypatch.setenv("GPUYARD_BROKER_URL", broker.celeryconfig["url"])
    try:
        with Redis(unix_socket_path=broker.celeryconfig["url"].removeprefix("redis+socket://")) as redis:
            assert machine_checks.check_broker().level == "warn", "no control worker is there"
            redis.config_set("maxmemory", 1)
            found = machine_checks.check_broker()
            assert found.level == "red"
            assert found.text.endswith("answers and takes no messages: its memory is full")
            assert "raise its maxmemory" in found.do
            redis.config_set("maxmemory", 0)
            assert machine_checks.check_broker().level == "warn"
    finally:
        broker.teardown()


def test_what_the_server_says_of_its_broker_is_red_with_what_to_do(api: FakePublicApi) -> None:
    full = {"broker": "the API's broker takes no messages, for its memory is full; raise its maxmemory: batches go on"}
    found = asked(api, readyz=Says(READY | {"degraded": full}))["broker"]
    assert (found.level, found.do) == ("red", "raise its maxmemory")
    assert found.text == "the API's broker takes no messages, for its memory is full: batches go on"


def test_all_contents_are_read_and_each_that_is_not_what_was_written_is_red(tmp_path: Path) -> None:
    machine = Commands(tmp_path)
    assert machine.run("migrate").code == 0
    data = tmp_path / "data"
    with closing(Store(f"sqlite:///{data / 'gpuyard.db'}")) as store:
        found = new_yard(store, data / "blobs")
        file_id = input_file(found, 3)
        key = files.content(found, USER, file_id).blob_key

    done = machine.run("doctor", "--contents")
    assert (done.code, done.err) == (0, "")
    assert (
        "ok    contents  stored files read: 1 (0.0 MiB); inputs of shards that may still run: 0; all match" in done.out
    )

    blobs = LocalBlobs(data / "blobs")
    good = damage(blobs, key, WAYS["flipped"])
    done = machine.run("doctor", "--contents")
    assert done.code == 1
    says = f"red   contents  {file_id} (input.jsonl): damaged, its bytes 0 to {len(good) - 1} are not those"
    assert says in done.out
    assert f"-> restore blobs/{key[:2]}/{key[2:4]}/{key} of the data folder from a backup" in done.out

    blobs.delete(key)
    done = machine.run("doctor", "--contents", "--json", "--data", data, GPUYARD_DATA_DIR="/nowhere")
    texts = [finding["text"] for finding in done.document["findings"]]
    assert (done.code, done.document["healthy"]) == (1, False)
    assert f"{file_id} (input.jsonl): missing, it is gone" in texts

    blobs.put(key, [good])
    done = machine.run("doctor", "--contents")
    assert done.code == 0
    assert f"ok    contents  {file_id} (input.jsonl): sound again, and can be read" in done.out


def test_contents_of_a_machine_without_a_database_are_not_called_well(tmp_path: Path) -> None:
    done = Commands(tmp_path).run("doctor", "--contents")
    assert done.code == 1
    assert "red   contents  stopped early:" in done.out
    assert "Traceback" not in done.out
