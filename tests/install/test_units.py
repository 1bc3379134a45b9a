"""The unit files of docs/operate/systemd: a part starts again, is given time to end, and keeps its hands to itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.api.duties import CHILD_STOP_SECONDS
from app.api.serving import STOP_SECONDS
from app.client.control_plane import BYE_SECONDS
from app.worker.drain import HAND_IN_SECONDS
from app.worker.watchdog import EXIT_SECONDS
from config.settings import WorkerSettings
from tests.units import UNITS, Unit

SINCE_254 = ("RestartSteps", "RestartMaxDelaySec")
"""Older versions of systemd say that they ignore these."""
PARTS = ("api", "beat", "control", "worker")


@pytest.fixture(params=PARTS)
def unit(request: pytest.FixtureRequest) -> Unit:
    return Unit.of(request.param)


def test_there_is_one_for_each_part_of_a_yard() -> None:
    assert {path.name for path in UNITS.iterdir()} == {f"gpuyard-{part}.service" for part in PARTS}


def test_a_part_that_ends_is_started_again_however_often(unit: Unit) -> None:
    assert unit.value("Restart") == "always"
    assert unit.value("StartLimitIntervalSec") == "0"


def test_a_worker_is_given_longer_than_its_drain_its_last_hand_in_and_its_goodbye_can_take() -> None:
    settings = WorkerSettings()
    drain = settings.drain_seconds + settings.kill_after_seconds + HAND_IN_SECONDS
    assert Unit.of("worker").stop_seconds > drain + BYE_SECONDS + EXIT_SECONDS


def test_the_api_is_given_longer_than_its_calls_and_the_control_worker_it_started() -> None:
    assert Unit.of("api").stop_seconds > STOP_SECONDS + CHILD_STOP_SECONDS


def test_a_stop_is_said_to_the_part_alone_and_what_it_leaves_is_killed(unit: Unit) -> None:
    """A model that runs below a worker must outlive the signal, or no row in flight could end."""
    assert unit.value("KillMode") == "mixed"
    assert "KillSignal" not in unit.text


def test_a_part_is_nobody_and_writes_into_its_own_folder_only(unit: Unit) -> None:
    said = {"User": "gpuyard", "StateDirectory": "gpuyard", "WorkingDirectory": "%S/gpuyard", "UMask": "0077"}
    closed = {"ProtectSystem": "strict", "ProtectHome": "yes", "NoNewPrivileges": "yes", "CapabilityBoundingSet": ""}
    assert {name: unit.value(name) for name in said | closed} == said | closed


def test_keys_stand_in_a_file_that_systemd_reads_and_in_no_unit(unit: Unit) -> None:
    assert unit.value("EnvironmentFile") == f"/etc/gpuyard/{'worker' if unit.part == 'worker' else 'control'}.env"
    assert all(word not in unit.text for word in ("GPUYARD_API_KEY", "GPUYARD_BROKER_URL", "GPUYARD_BOOTSTRAP_TOKEN"))


def test_a_worker_keeps_its_devices() -> None:
    assert "PrivateDevices" not in Unit.of("worker").text
    assert "MemoryDenyWriteExecute" not in Unit.of("worker").text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze on PATH")
def test_systemd_finds_nothing_to_say_about_them(tmp_path: Path) -> None:
    """It looks for the programs, too; here they are those of this environment."""
    for path in UNITS.iterdir():
        text = path.read_text(encoding="utf-8")
        programs = ("/opt/gpuyard/bin/celery", "/opt/gpuyard/bin/gpuyard")
        assert any(program in text for program in programs)
        for program in programs:
            text = text.replace(program, sys.executable)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if not any(f"'{key}'" in line for key in SINCE_254)]
    assert (done.returncode, done.stdout, said) == (0, "", [])


def test_a_part_that_ends_at_each_start_is_started_ever_more_seldom(unit: Unit) -> None:
    assert {key: unit.value(key) for key in SINCE_254} == {"RestartSteps": "6", "RestartMaxDelaySec": "60"}
