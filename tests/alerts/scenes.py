"""Scenes of trouble on a running yard, each with the alerts that it is to fire; `test_rules` plays them.

A scene is a generator: at each `yield` the yard's page is scraped and held for so many minutes.
"""

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import httpx
import pytest

from app.blobs.local import LocalBlobs
from app.db import metrics as metrics_sql
from app.db.store import DatabaseUnavailable
from app.domain.webhooks import networks
from app.domain.workers import ByeReason
from app.schemas.webhooks import NewWebhookEndpoint
from app.schemas.workers import Bye, Heartbeat, HostSample
from app.services import control, files, presence, webhooks
from app.services.context import Limits, Yard
from app.sweeps.election import SWEEPS, run_pass
from tests.damaged import WAYS, damage
from tests.fakes.hanging_blobs import HangingBlobs
from tests.hands import ANSWER, REFUSED, Hands, do_control_work, runtime
from tests.process_nodes import BrokerContainer
from tests.scraped import scrape
from tests.served import Served, rows

LONG = 30.0
Scene = Generator[int, None, None]


@dataclass(frozen=True)
class Stage:
    """What a scene plays on."""

    served: Served
    broker: BrokerContainer
    http: httpx.Client
    monkeypatch: pytest.MonkeyPatch

    def sweep(self, *names: str, runner: str = "control@test") -> None:
        """Run a pass of these sweeps, of all without a name, as a control worker does."""
        for name in names or tuple(SWEEPS):
            run_pass(self.served.yard, name, 0.0, runner)

    def later(self, seconds: float, *without: str) -> None:
        """Let time go by in which all is well with the control side; sweeps `without` some."""
        while seconds > 0:
            step = min(seconds, 20.0)
            self.served.shift(seconds=step)
            presence.tick(self.served.yard)
            seconds -= step
        self.sweep(*(name for name in SWEEPS if name not in without))

    def submit(self, count: int, *, validated: bool = True) -> None:
        """Create a batch."""
        content = {"file": ("in.jsonl", rows(count))}
        file = self.http.post("/v1/files", files=content, data={"purpose": "batch"}).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        self.http.post("/v1/batches", json=body).raise_for_status()
        if validated:
            do_control_work(self.served)

    def hands(self) -> closing[Hands]:
        """A GPU worker that is there and ready."""
        found = Hands(self.served)
        found.plane.heartbeat(found.worker_id, Heartbeat(boot_id=found.boot_id), timeout_seconds=LONG)
        return closing(found)


def all_is_well(stage: Stage) -> Scene:
    with stage.hands() as hands:
        yield 5
        stage.submit(300)
        hands.work()
        do_control_work(stage.served)
        yield 30


def nobody_is_there(stage: Stage) -> Scene:
    yield 5
    stage.submit(300)
    stage.later(2000)
    yield 10


def a_worker_is_lost(stage: Stage) -> Scene:
    with stage.hands() as hands:
        stage.submit(8 * 256)
        hands.claim()
    stage.sweep()
    yield 5
    stage.later(100)
    stage.later(300)
    yield 10


def no_sweep_runs(stage: Stage) -> Scene:
    with stage.hands() as hands:
        stage.submit(10)
        hands.claim()
        stage.sweep()
        yield 5
        for _ in range(30):  # the API ticks, so the lease runs out; nobody ends it
            stage.served.shift(seconds=15)
            presence.tick(stage.served.yard)
        hands.plane.heartbeat(hands.worker_id, Heartbeat(boot_id=hands.boot_id), timeout_seconds=LONG)
        yield 5


def an_api_process_sweeps(stage: Stage) -> Scene:
    stage.sweep(runner="api-one-1")
    yield 15


def a_pass_hangs(stage: Stage) -> Scene:
    """Its disk does, and nothing else: the other sweeps run."""
    stage.sweep()
    yard = stage.served.yard
    with TemporaryDirectory() as folder:
        contents = HangingBlobs(Path(folder) / "blobs")
        contents.go_away()
        hung = Thread(target=run_pass, args=(replace(yard, blobs=contents), "retention", 0.0, "control@hangs"))
        hung.start()
        until(lambda: contents.hanging == 1)
        yield 5
        stage.later(1000, "retention")
        yield 5
        contents.come_back()
        hung.join(LONG)


def nobody_validates(stage: Stage) -> Scene:
    stage.submit(10, validated=False)
    stage.later(200)
    yield 5


def the_database_is_away(stage: Stage) -> Scene:
    yield 5

    def away(_session: object) -> None:
        raise DatabaseUnavailable("gone")

    stage.monkeypatch.setattr(metrics_sql, "workers", away)
    logging.getLogger("gpuyard.metrics").setLevel(logging.CRITICAL)
    yield 5


def the_broker_is_away(stage: Stage) -> Scene:
    yield 5
    stage.broker.kill()
    until(lambda: scrape(stage.http).get("gpuyard_broker_up") == 0)
    yield 5


def the_disk_fills(stage: Stage) -> Scene:
    stage.monkeypatch.setattr(LocalBlobs, "free_bytes", lambda _self: 10**9)
    yield 10


def a_content_is_damaged(stage: Stage) -> Scene:
    answer = stage.http.post("/v1/files", files={"file": ("in.jsonl", rows(3))}, data={"purpose": "batch"})
    path = f"/v1/files/{answer.json()['id']}/content"
    yard = stage.served.yard
    yield 5
    damage(yard.blobs, files.content(yard, stage.served.operator(), answer.json()["id"]).blob_key, WAYS["flipped"])
    assert stage.http.get(path).status_code == httpx.codes.CONFLICT
    yield 5


def calls_fail(stage: Stage) -> Scene:
    store = stage.served.yard.store
    key = stage.served.client(stage.served.admin).api_key
    assert key
    for _ in range(12):
        with stage.monkeypatch.context() as broken:
            broken.setattr(store, "read", _away)
            assert stage.http.get("/v1/files").status_code == 503
        stage.http.get("/v1/files").raise_for_status()
        yield 1


def rows_fail(stage: Stage) -> Scene:
    with stage.hands() as hands:
        yield 1  # from the next scrape on its pool has counters, at zero
        yield 5
        stage.submit(400)
        hands.work(lambda row: REFUSED if row % 2 else ANSWER)
        do_control_work(stage.served)
        yield 8


def a_runtime_is_down(stage: Stage) -> Scene:
    with stage.hands() as hands:
        dead = runtime("m").model_copy(update={"alive": False, "reason": "connection refused"})
        beat = Heartbeat(boot_id=hands.boot_id, runtimes=[dead])
        hands.plane.heartbeat(hands.worker_id, beat, timeout_seconds=LONG)
        yield 10


def a_workers_disk_is_full(stage: Stage) -> Scene:
    with stage.hands() as hands:
        beat = Heartbeat(boot_id=hands.boot_id, sample=HostSample(disk_free=0, spool_error="no space left"))
        hands.plane.heartbeat(hands.worker_id, beat, timeout_seconds=LONG)
        yield 5


def a_webhook_is_not_taken(stage: Stage) -> Scene:
    _hooked(stage)
    yield 5
    for _ in range(12):
        stage.later(400)
        _deliver(stage)
    yield 10


def a_webhook_is_given_up(stage: Stage) -> Scene:
    _hooked(stage)
    yield 5
    _deliver(stage, replace(stage.served.yard.limits, webhook_max_tries=1))
    yield 5


def _hooked(stage: Stage) -> None:
    """Have a batch's end told to a port where nobody listens."""
    wanted = NewWebhookEndpoint(name="mine", url="http://127.0.0.1:9/", event_types=["batch.completed"])
    webhooks.create(_allowed(stage), stage.served.operator(), wanted)
    with stage.hands() as hands:
        stage.submit(10)
        hands.work()
        do_control_work(stage.served)
        hands.plane.bye(hands.worker_id, Bye(boot_id=hands.boot_id, reason=ByeReason.SIGNAL))
    scrape(stage.http)  # events count from the first one


def _deliver(stage: Stage, limits: Limits | None = None) -> None:
    yard = _allowed(stage)
    do_control_work(stage.served, claim=control.claim_delivery, yard=replace(yard, limits=limits or yard.limits))


def _allowed(stage: Stage) -> Yard:
    yard = stage.served.yard
    return replace(yard, webhooks=replace(yard.webhooks, networks=networks(["127.0.0.0/8"])))


def _away(*_: object) -> None:
    raise DatabaseUnavailable("gone")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


SCENES: Mapping[Callable[[Stage], Scene], Sequence[str]] = {
    all_is_well: (),
    nobody_is_there: ("GpuyardNoWorker", "GpuyardQueueWaits"),
    a_worker_is_lost: ("GpuyardWorkerSilent", "GpuyardLeasesExpire", "GpuyardNoWorker"),
    no_sweep_runs: ("GpuyardLeasesOverdue", "GpuyardSweepStale"),
    a_pass_hangs: ("GpuyardSweepHangs",),
    an_api_process_sweeps: ("GpuyardSweepsDegraded",),
    a_webhook_is_not_taken: ("GpuyardWebhooksFail",),
    a_webhook_is_given_up: ("GpuyardWebhookGivenUp",),
    nobody_validates: ("GpuyardControlWorkWaits",),
    the_database_is_away: ("GpuyardDatabaseDown",),
    the_broker_is_away: ("GpuyardBrokerDown",),
    the_disk_fills: ("GpuyardDiskLow",),
    a_content_is_damaged: ("GpuyardContentDamaged",),
    calls_fail: ("GpuyardApiErrors",),
    rows_fail: ("GpuyardRowsFail",),
    a_runtime_is_down: ("GpuyardRuntimeDown",),
    a_workers_disk_is_full: ("GpuyardWorkerDiskFull",),
}
NOBODY_ANSWERS = ("GpuyardNoApi",)
