import json
import logging
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app.domain.jobs import MAX_SHARD_ROWS
from app.domain.rowsets import RowSet
from app.schemas.segments import RowSetText
from config.errors import SettingsError
from config.settings import (
    ClientSettings,
    ServerSettings,
    WorkerSettings,
    load,
    load_with_origins,
)


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(
    own_surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-01, C-03."""
    (own_surroundings / "home.toml").write_text('runtime = "vllm"\nmachine_id = "file"\npool = "file"\n')
    monkeypatch.setenv("GPUYARD_MACHINE_ID", "environment")
    monkeypatch.setenv("GPUYARD_POOL", "environment")

    settings, origins = load_with_origins(WorkerSettings, cli={"pool": "line", "worker_name": None})

    assert (settings.pool, origins["pool"]) == ("line", "command line")
    assert (settings.machine_id, origins["machine_id"]) == ("environment", "environment")
    assert (settings.runtime, origins["runtime"]) == ("vllm", str(own_surroundings / "home.toml"))
    assert (settings.renew_seconds, origins["renew_seconds"]) == (10.0, "default")
    assert (settings.worker_name, origins["worker_name"]) == (None, "default")


def test_only_the_first_file_found_is_read(own_surroundings: Path) -> None:
    (own_surroundings / "etc.toml").write_text('pool = "etc"\n')
    (own_surroundings / "home.toml").write_text('pool = "home"\n')
    named = own_surroundings / "named.toml"
    named.write_text('pool = "named"\n')

    assert load(WorkerSettings).pool == "etc"
    assert load(WorkerSettings, config=named).pool == "named"


@pytest.mark.parametrize("gap", [2, 3, 4, 5])
def test_every_shard_fits_what_a_hand_in_carries(own_surroundings: Path, gap: int) -> None:
    with pytest.raises(SettingsError, match="shard_rows"):
        load(ServerSettings, cli={"shard_rows": MAX_SHARD_ROWS + 1})
    last = 2**31 - 1
    with_gaps = str(RowSet.of(row for row in range(last - MAX_SHARD_ROWS, last) if row % gap))
    assert TypeAdapter(RowSetText).validate_python(with_gaps) == with_gaps


def test_the_file_may_be_named_by_the_environment(own_surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_surroundings / "mine.toml").write_text("port = 1234\n")
    monkeypatch.setenv("GPUYARD_CONFIG", str(own_surroundings / "mine.toml"))

    assert load(ServerSettings).port == 1234


def test_a_named_file_that_does_not_exist_is_an_error(own_surroundings: Path) -> None:
    with pytest.raises(SettingsError, match="no such settings file"):
        load(WorkerSettings, config=own_surroundings / "none.toml")


def test_an_unknown_key_of_the_file_names_the_nearest_known_one(own_surroundings: Path) -> None:
    (own_surroundings / "home.toml").write_text("drain_second = 5\n")

    with pytest.raises(SettingsError, match=r"home\.toml: unknown setting drain_second, did you mean drain_seconds\?"):
        load(WorkerSettings)


def test_an_unknown_variable_names_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_SHARD_ROW", "5")

    with pytest.raises(SettingsError, match=r"GPUYARD_SHARD_ROW, did you mean GPUYARD_SHARD_ROWS\?"):
        load(ClientSettings)


def test_a_variable_of_a_runs_child_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_INVOCATION_ID", "run_1")

    load(ClientSettings)


def test_one_file_serves_all_roles(own_surroundings: Path) -> None:
    (own_surroundings / "home.toml").write_text('shard_rows = 5\nruntime = "local"\n')

    assert load(ServerSettings).shard_rows == 5
    assert load(WorkerSettings).runtime == "local"


@pytest.mark.parametrize("name", ["log_levle", "runtime_ulr"])
def test_an_unknown_option_is_an_error_too(name: str) -> None:
    with pytest.raises(SettingsError, match="did you mean"):
        load(WorkerSettings, cli={name: "x"})


def test_an_empty_variable_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_BROKER_URL", "")

    assert load(WorkerSettings).broker_url is None


@pytest.mark.parametrize(
    ("timings", "rule"),
    [
        ({"renew_seconds": 50, "grace_seconds": 50}, r"at least 2 \* renew_seconds \+ sweep_seconds \(105\)"),
        ({"grace_seconds": 24.9}, r"at least 2 \* renew_seconds \+ sweep_seconds \(25\)"),
        ({"sweep_seconds": 31, "grace_seconds": 50}, r"at least 2 \* renew_seconds \+ sweep_seconds \(51\)"),
        ({"grace_seconds": 280}, "grace_seconds < toleration_seconds"),
        ({"toleration_seconds": 1e300}, "toleration_seconds must be above 0 and at most 604800"),
        ({"kill_after_seconds": 19}, r"kill_after_seconds \+ 1 \(20\) must be below 2 \* renew_seconds"),
        ({"sweep_seconds": 25}, "sweep_seconds < grace_seconds / 2"),
    ],
)
def test_timings_under_which_a_job_could_run_twice_are_refused(timings: dict[str, float], rule: str) -> None:
    """C-13."""
    with pytest.raises(SettingsError, match=rule):
        load(ServerSettings, cli=timings)


def test_a_bad_value_is_named_with_its_place_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_BOOTSTRAP_TOKEN", "hunter2")

    with pytest.raises(SettingsError, match=r"bootstrap_token \(environment\)") as refusal:
        load(ServerSettings)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("admin", [None, "gk-same"])
def test_a_key_for_workers_needs_an_admins_and_is_not_that(admin: str | None) -> None:
    with pytest.raises(SettingsError, match="bootstrap_worker_token") as refusal:
        load(ServerSettings, cli={"bootstrap_token": admin, "bootstrap_worker_token": "gk-same"})
    assert "gk-same" not in str(refusal.value)


def test_only_what_is_wrong_is_told_and_not_what_follows_from_it() -> None:
    with pytest.raises(SettingsError) as refusal:
        load(ServerSettings, cli={"port": 99999})
    assert str(refusal.value).count("command line") == 1
    assert "default factory" not in str(refusal.value)


def test_a_data_folder_whose_database_would_lie_elsewhere_is_refused() -> None:
    with pytest.raises(SettingsError, match="question mark"):
        load(ServerSettings, cli={"data_dir": Path("/srv/a?b")})


def test_runtime_urls_are_a_comma_list_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_RUNTIME_URL", "http://a:1, http://b:2/v1")

    assert load(WorkerSettings).runtime_url == ("http://a:1", "http://b:2/v1")


def test_prompts_in_flight_are_auto_or_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(WorkerSettings).max_concurrent_prompts == "auto"
    monkeypatch.setenv("GPUYARD_MAX_CONCURRENT_PROMPTS", "12")
    assert load(WorkerSettings).max_concurrent_prompts == 12
    monkeypatch.setenv("GPUYARD_MAX_CONCURRENT_PROMPTS", "0")
    with pytest.raises(SettingsError, match="max_concurrent_prompts"):
        load(WorkerSettings)


def test_derived_defaults_follow_what_they_are_derived_from(own_surroundings: Path) -> None:
    settings = load(ServerSettings, cli={"renew_seconds": 6, "data_dir": own_surroundings, "kill_after_seconds": 1})

    assert settings.stop_grace_seconds == 18
    assert settings.database_url.get_secret_value() == f"sqlite:///{own_surroundings}/gpuyard.db"


def test_only_a_loopback_address_goes_without_tls() -> None:
    """C-19."""
    with pytest.raises(SettingsError, match="not a loopback address"):
        load(ServerSettings, cli={"host": "0.0.0.0"})  # noqa: S104 - the refusal is the test
    assert load(ServerSettings, cli={"host": "0.0.0.0", "tls": "proxy"}).tls == "proxy"  # noqa: S104


def test_a_certificate_beside_a_proxy_is_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_TLS", "proxy")
    monkeypatch.setenv("GPUYARD_TLS_CERT", "/c.pem")
    monkeypatch.setenv("GPUYARD_TLS_KEY", "/k.pem")
    with pytest.raises(SettingsError, match="leave one of them out"):
        load(ServerSettings)


def test_a_tls_table_names_certificate_and_key(own_surroundings: Path) -> None:
    (own_surroundings / "home.toml").write_text('tls = { cert = "/c.pem", key = "/k.pem" }\nhost = "10.0.0.1"\n')

    assert load(ServerSettings).tls_cert == Path("/c.pem")


def test_pools_are_tables_of_the_file(own_surroundings: Path) -> None:
    (own_surroundings / "home.toml").write_text("[pools.a100]\nbatches = 2\nmax_load = 1.5\n")

    assert load(ServerSettings).pools["a100"].batches == 2


def test_an_unknown_key_of_a_pool_names_the_nearest_known_one(own_surroundings: Path) -> None:
    (own_surroundings / "home.toml").write_text("[pools.a100]\nbatch = 2\n")

    with pytest.raises(SettingsError, match=r"pools\.a100\.batch .*did you mean batches\?"):
        load(ServerSettings)


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ("[pools.control]\nruns = 1\n", "reserved name"),
        ("[pools.a100]\nrenew_seconds = 5\n", "go together"),
        (
            "[pools.a100]\nrenew_seconds = 5\ngrace_seconds = 20\ntoleration_seconds = 60\n",
            r"pools\.a100: kill_after_seconds \+ 1 \(11\)",
        ),
        (
            "[pools.a100]\nrenew_seconds = 10\ngrace_seconds = 20\ntoleration_seconds = 60\n",
            r"pools\.a100: grace_seconds \(20\) must be at least 2 \* renew_seconds \+ sweep_seconds \(25\)",
        ),
        ("[pools.a100]\nrenew_seconds = 0.5\n", r"pools\.a100\.renew_seconds"),
    ],
)
def test_a_pool_that_could_not_work_is_refused(own_surroundings: Path, table: str, rule: str) -> None:
    (own_surroundings / "home.toml").write_text(table)

    with pytest.raises(SettingsError, match=rule):
        load(ServerSettings)


def test_the_command_line_client_finds_the_local_server_by_itself(own_surroundings: Path) -> None:
    (own_surroundings / "data").mkdir()
    (own_surroundings / "data" / "local.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "api_key": "gk-a"}))

    settings, origins = load_with_origins(ClientSettings)

    assert settings.server_url == "http://127.0.0.1:1"
    assert origins["api_key"].startswith("gpuyard up")
    assert load(WorkerSettings).server_url is None


def test_the_local_servers_key_is_never_sent_to_another_server(
    own_surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_surroundings / "data").mkdir()
    (own_surroundings / "data" / "local.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "api_key": "gk-a"}))
    monkeypatch.setenv("GPUYARD_SERVER_URL", "https://other/v1")

    settings = load(ClientSettings)

    assert settings.server_url == "https://other"
    assert settings.api_key is None


def test_a_plain_broker_on_another_host_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(WorkerSettings, cli={"broker_url": "redis://:secret@10.0.0.1/0"})

    assert "plain redis://" in caplog.text
    assert "secret" not in caplog.text


def test_settings_cannot_be_changed() -> None:
    settings = load(WorkerSettings)

    with pytest.raises(ValueError, match="frozen"):
        settings.pool = "other"  # type: ignore[misc]
