"""`gpuyard up` that cannot start says why; two at once are one; its logs are bounded."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.local.logs import LOG_BYTES
from tests.installation import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    found = Installation(tmp_path)
    yield found
    if found.process is not None and found.process.poll() is None:
        found.stop()


def failed_start(installation: Installation) -> str:
    """Start it, and give what it says of why it could not."""
    done = subprocess.run(
        installation.up_command("--no-worker"),
        env=installation.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_of_two_at_the_same_moment_exactly_one_runs(installation: Installation) -> None:
    both = [
        subprocess.Popen(
            installation.up_command("--no-worker"), env=installation.environment(), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        end = time.monotonic() + 100
        while not (ended := [each for each in both if each.poll() is not None]):
            assert time.monotonic() < end
            time.sleep(0.05)
        (loser,), (winner,) = ended, [each for each in both if each not in ended]
        assert loser.wait() == 1
        assert loser.stderr is not None
        assert loser.stderr.read().strip() == (
            f"gpuyard: another gpuyard up (pid {winner.pid}) runs on {installation.data}"
        )
        while not installation.ready_file.exists():
            assert winner.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        assert httpx.get(installation.ready()["url"] + "/readyz").status_code == 200
    finally:
        for each in both:
            if each.poll() is None:
                each.send_signal(signal.SIGINT)
            each.communicate(timeout=60)


@pytest.mark.parametrize("part", ["api", "control"])
def test_a_part_that_cannot_start_is_its_reason_at_once(installation: Installation, part: str) -> None:
    installation.data.mkdir(mode=0o700)
    if part == "api":
        (installation.data / "gpuyard.db").write_bytes(b"no database" * 1000)
        (installation.data / "logs").mkdir()
        (installation.data / "logs" / "api.log").write_text("gpuyard: an old reason\n")
        says = (
            f"api ended (1): the database file is damaged, or is no SQLite database; move it away .*{installation.data}"
        )
    else:
        (installation.data / "control").touch()
        says = f"control ended (1): {installation.data}/control: it is no folder"
    said = failed_start(installation)
    assert said.startswith("gpuyard: " + says.partition(" .*")[0])
    assert str(installation.data) in said


def test_an_api_that_is_up_and_not_ready_is_not_waited_for(installation: Installation) -> None:
    (installation.data / "blobs").mkdir(parents=True)
    (installation.data / "blobs" / "unfinished").touch()
    assert "the API is not ready: blobs: " in failed_start(installation)


def test_a_database_that_is_gone_is_begun_again_only_when_told_so(installation: Installation) -> None:
    """And what was kept beside it, such as the workers' key, does not keep the new one from running."""
    installation.data.mkdir(mode=0o700)
    logs = installation.data / "logs"
    logs.mkdir()
    (logs / "api.log").write_bytes(b"x" * LOG_BYTES)
    old = installation.up()
    assert (logs / "api.log.1").stat().st_size == LOG_BYTES
    assert (logs / "api.log").stat().st_size < LOG_BYTES
    installation.stop()
    (installation.data / "gpuyard.db").unlink()
    said = failed_start(installation)
    assert said.startswith("gpuyard: api ended (1): the database file is gone")
    assert "gpuyard migrate --new-database" in said
    assert not (installation.data / "gpuyard.db").exists()
    begun = installation.run("migrate", "--new-database", "--data", str(installation.data))
    assert begun.returncode == 0, begun.stderr
    new = installation.up()
    assert new["api_key"] == old["api_key"]
    assert new["worker_key"] != old["worker_key"]
    assert {path.stat().st_mode & 0o077 for path in installation.data.glob("gpuyard.db*")} == {0}
