"""The control agent with its real threads: it needs no bell, outlives errors, and gives back what it cannot do."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlmodel import select

from app.control import watch, work
from app.control.agent import ControlAgent
from app.control.beats import Beats
from app.control.place import Place
from app.db.inputs import input_blob
from app.db.tables import Lease, Worker
from app.domain.jobs import ControlVerb
from app.domain.timing import Timing
from app.services import control
from app.services.context import Yard
from app.sweeps.election import SWEEPS
from tests.databases import ON_POSTGRES_LATER
from tests.fakes.hanging_blobs import HangingBlobs
from tests.logged import logged
from tests.yards import Controller, batch, cancel, control_job, created, states

LONG = 20.0


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)


@contextmanager
def running(yard: Yard, threads: int = 2) -> Iterator[ControlAgent]:
    with TemporaryDirectory() as folder:
        agent = ControlAgent(yard, place=Place(Path(folder)), periods=dict.fromkeys(SWEEPS, 60.0), threads=threads)
        agent.start()
        try:
            yield agent
        finally:
            agent.stop()


@ON_POSTGRES_LATER
def test_it_takes_work_without_any_bell(yard: Yard) -> None:
    first = created(yard)
    with running(yard):
        wait_for(lambda: batch(yard, first).state == "validated")
        second = created(yard)
        wait_for(lambda: batch(yard, second).state == "validated")


def test_work_whose_disk_hangs_is_said_again_and_again_and_ends_when_the_disk_answers(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "LONG_SECONDS", 0.5)
    first = created(yard)
    contents = HangingBlobs(tmp_path / "blobs")
    contents.go_away()
    quick = Timing(0.6, 5.0, 20.0, kill_after_seconds=0.0, sweep_seconds=1.0)
    with running(replace(yard, blobs=contents, timing=quick), threads=1):
        wait_for(lambda: caplog.text.count(f"validate of {first} has taken") >= 2)
        contents.come_back()
        wait_for(lambda: batch(yard, first).state == "validated")


def test_a_bell_makes_it_look_at_once(yard: Yard) -> None:
    with running(yard) as agent:
        first = created(yard)
        wait_for(lambda: batch(yard, first).state == "validated")
        second = created(yard)
        began = time.monotonic()

        def rung() -> bool:
            agent.wake()
            return batch(yard, second).state == "validated"

        wait_for(rung)
        assert time.monotonic() - began < work.LOOK_SECONDS


def test_its_lines_name_worker_batch_job_and_lease(yard: Yard, tmp_path: Path) -> None:
    """Of what it does at once, and of what it leases first."""
    with logged("control", tmp_path / "log") as line_of, running(yard) as agent:
        batch_id = created(yard)
        at_once = line_of("validate of ")
        cancel(yard, batch_id)
        agent.wake()
        leased = line_of("finalize of ")
    work_of = {"process": "control", "batch_id": batch_id}
    for line, verb in ((at_once, ControlVerb.VALIDATE), (leased, ControlVerb.FINALIZE)):
        job = control_job(yard, batch_id, verb)
        assert job is not None
        assert line.items() >= (work_of | {"job_id": job.id}).items()
        assert str(line["worker"]).startswith("control-")
    assert isinstance(leased["lease_id"], int)


def test_it_says_hello_and_goodbye_like_any_worker(yard: Yard) -> None:
    with running(yard) as agent:
        wait_for(lambda: agent.name in [worker.name for worker in workers(yard)])
        (found,) = workers(yard)
        assert (found.transport, found.pool, found.state) == ("control", "control", "active")
    assert [worker.state for worker in workers(yard)] == ["gone"]


def workers(yard: Yard) -> list[Worker]:
    with yard.store.read() as session:
        return list(session.exec(select(Worker)))


@contextmanager
def database_away(yard: Yard) -> Iterator[threading.Event]:
    """Every statement fails while the event is set."""
    away = threading.Event()

    def refuse(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if away.is_set() and threading.current_thread() is not threading.main_thread():
            raise OperationalError(statement, {}, Exception("the database is away"))

    event.listen(yard.store.engine, "before_cursor_execute", refuse)
    try:
        yield away
    finally:
        away.clear()
        event.remove(yard.store.engine, "before_cursor_execute", refuse)


def test_it_survives_a_database_that_is_away(yard: Yard) -> None:
    with database_away(yard) as away, running(yard) as agent:
        wait_for(lambda: workers(yard))
        away.set()
        batch_id = created(yard)
        for _ in range(10):
            agent.wake()
            time.sleep(0.02)
        assert batch(yard, batch_id).state == "validating"
        away.clear()

        def rung() -> bool:
            agent.wake()
            return batch(yard, batch_id).state == "validated"

        wait_for(rung)


@ON_POSTGRES_LATER
def test_work_that_cannot_be_done_is_put_off_and_done_later(yard: Yard) -> None:
    batch_id = created(yard)
    with yard.store.read() as session:
        key = input_blob(session, batch_id)
    content = yard.blobs.read(key)
    yard.blobs.delete(key)

    def attempts() -> int:
        job = control_job(yard, batch_id, ControlVerb.VALIDATE)
        return job.attempts if job is not None else 0

    with running(yard) as agent:
        wait_for(lambda: attempts() == 1)
        other = created(yard)

        def rung() -> bool:
            agent.wake()
            return batch(yard, other).state == "validated"

        wait_for(rung)
        yard.blobs.put(key, [content])
        wait_for(lambda: rung() and batch(yard, batch_id).state == "validated")


def test_a_second_hello_keeps_what_is_being_worked_on(yard: Yard) -> None:
    created(yard)
    beats = Beats(yard, name="control", install_id="install", boot_id="boot", stopping=threading.Event())
    beats._hello()
    assert beats.worker_id is not None
    grant = Controller(yard, id=beats.worker_id).claims()
    assert grant is not None
    beats.hold(grant.lease_id)
    beats._hello()
    assert states(yard, grant.lease_id) == ["held"]


@ON_POSTGRES_LATER
def test_two_control_workers_of_one_name_both_work(yard: Yard) -> None:
    stopping = threading.Event()
    first = Beats(yard, name="control", install_id="one", boot_id="boot-1", stopping=stopping)
    second = Beats(yard, name="control", install_id="two", boot_id="boot-2", stopping=stopping)
    first._hello()
    threads = threading.Thread(target=second.run)
    threads.start()
    try:
        wait_for(lambda: second.worker_id is not None)
    finally:
        stopping.set()
        threads.join(LONG)
    assert first.worker_id != second.worker_id


def test_its_beats_renew_what_it_works_on(yard: Yard) -> None:
    quick = replace(yard, timing=Timing(1.0, 2.5, 5.0, 0.5, 0.5))
    created(quick)
    stopping = threading.Event()
    beats = Beats(quick, name="control", install_id="install", boot_id="boot", stopping=stopping)
    beats._hello()
    assert beats.worker_id is not None
    grant = Controller(quick, id=beats.worker_id).claims()
    assert grant is not None

    def ends() -> object:
        with yard.store.read() as session:
            return session.exec(select(Lease.expires_at).where(Lease.id == grant.lease_id)).one()

    before = ends()
    beats.hold(grant.lease_id)
    thread = threading.Thread(target=beats.run)
    thread.start()
    try:
        wait_for(lambda: ends() != before)
    finally:
        stopping.set()
        thread.join(LONG)


def test_a_killed_control_workers_job_is_free_as_soon_as_it_is_started_again(yard: Yard, tmp_path: Path) -> None:
    place = Place(tmp_path / "control")
    name, install_id = place.name, place.install_id
    killed = Beats(yard, name=name, install_id=install_id, boot_id="boot-1", stopping=threading.Event())
    killed._hello()
    first = created(yard)
    assert killed.worker_id is not None
    grant = control.claim_control(yard, killed.worker_id, "request-1")
    assert grant is not None
    place.close()  # what the kernel does for a process that was killed

    again = Place(tmp_path / "control")
    agent = ControlAgent(yard, place=again, periods=dict.fromkeys(SWEEPS, 60.0))
    agent.start()
    wait_for(lambda: batch(yard, first).state == "validated")
    agent.stop()
    assert states(yard, grant.lease_id) == ["expired"]


def test_two_control_workers_of_one_folder_have_two_places(tmp_path: Path) -> None:
    one, two = Place(tmp_path), Place(tmp_path)
    assert one.name != two.name
    assert one.install_id != two.install_id
    two.close()
    assert Place(tmp_path).install_id == two.install_id
