"""All is lost in mid-run but a backup and the GPU machines: it is put back, and the batch ends with every row once.

The backup knows one worker and not the other, which joined after it; both hold leases that it never heard of.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import GPUYARD, TIMING, Yard, until
from tests.installation import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]
ROWS = 600
SLOW = "latency_ms=400"
FEW = 4
"""Prompts in flight of workers that must not be done before all is lost."""


@dataclass
class Place:
    """Where an installation is, and how its database is lost and made anew."""

    yard: Yard
    cluster: Cluster | None
    backup: Path

    def backs_up(self) -> dict[str, object]:
        """Run `gpuyard backup`, as an operator would."""
        return self._run("backup")

    def restores(self) -> dict[str, object]:
        return self._run("restore")

    def loses_everything(self) -> None:
        """The control plane's machine is gone, with its disk; GPU machines run on."""
        up = self.yard.installation.process
        assert up is not None
        pids = [pid for pid in self.yard.ready["pids"].values() if isinstance(pid, int)]
        for pid in [up.pid, *pids]:
            os.kill(pid, signal.SIGKILL)
        up.wait(30)
        until(lambda: not any(_runs(pid) for pid in pids), "nothing of the control plane runs")
        # What `up` leaves is ended by its guard, which holds the folder until it has done so.
        shutil.rmtree(self.yard.installation.data)
        self.yard.installation.ready_file.unlink()
        if self.cluster is not None:
            name = self.yard.installation.settings["GPUYARD_DATABASE_URL"].partition("?")[0].rpartition("/")[2]
            self.cluster.drop(name)
            fresh = self.cluster.url(self.cluster.create())
            self.yard.installation.settings["GPUYARD_DATABASE_URL"] = fresh

    def starts_again(self) -> None:
        """At the same address: that is how the machines know it."""
        self.yard.installation.up("--no-worker", "--port", self.yard.url.rpartition(":")[2])

    def _run(self, verb: str) -> dict[str, object]:
        installation = self.yard.installation
        done = subprocess.run(
            [*GPUYARD, verb, str(self.backup), "--data", str(installation.data), "--json"],
            env=installation.environment(),
            cwd=self.yard.folder,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres])])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    cluster: Cluster | None = request.getfixturevalue("postgres_cluster") if request.param == "postgres" else None
    if cluster is not None:
        monkeypatch.setenv("PATH", cluster.path)
    url = cluster.url(cluster.create()) if cluster is not None else None
    with Yard(tmp_path, database_url=url, timing=TIMING, shard_rows=16) as yard:
        yard.start()
        yield Place(yard, cluster, tmp_path / "backup")


@pytest.mark.long
def test_a_batch_in_mid_run_ends_with_every_row_once(place: Place) -> None:
    yard = place.yard
    yard.worker("before", max_concurrent_prompts=FEW)
    yard.until_present("before")
    batch = yard.submit(marked("kept", ROWS, SLOW))
    batch.stored(60)
    made = place.backs_up()
    assert (made["damaged"], made["copied"]) == ([], made["contents"])
    yard.worker("after", max_concurrent_prompts=FEW)
    yard.until_present("after")
    stored = batch.now().request_counts
    assert stored is not None
    batch.stored(stored.completed + 40)
    lost = yard.submit(marked("lost", 4))
    place.loses_everything()
    assert place.restores()["made_at"] == made["made_at"]
    place.starts_again()
    batch.stored(61)
    until(lambda: yard.workers["after"].exit_code == 1, "the worker that the backup does not know leaves")
    assert yard.workers["before"].alive
    yard.worker("after", max_concurrent_prompts=64)
    batch.ended(seconds=120)
    assert_each_row_once(batch, "kept", ROWS)
    assert lost.id not in {found.id for found in yard.sdk.batches.list()}
    assert yard.workers["before"].alive
    assert {"lease.granted", "batch.completed"} <= {event["type"] for event in yard.events(batch.id)}
    assert [event["type"] for event in yard.events("service")] == ["service.restored"]
    second = yard.submit(marked("second", 40))
    second.ended()
    assert_each_row_once(second, "second", 40)


def test_all_that_up_starts_comes_up_on_what_was_put_back_with_the_worker_of_the_backup(tmp_path: Path) -> None:
    """It comes as a new install: state folders of workers are in no backup."""
    installation = Installation(tmp_path)
    where = (str(tmp_path / "backup"), "--data", str(installation.data))
    installation.up("--workers", "1")
    try:
        assert installation.run("backup", *where).returncode == 0
    finally:
        installation.stop()
    installation.data.rename(tmp_path / "lost")
    assert installation.run("restore", *where).returncode == 0
    installation.up("--workers", "1")
    installation.stop()
