"""A dump that is restored into another PostgreSQL cluster: followers see all of it, and what is written afterwards."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app.api import main
from app.db import backups as backups_sql
from app.db import events as events_sql
from app.db import restored
from app.db.store import Store
from app.db.tables import Event, KnownCluster, Segment
from app.services import backups, events, results
from app.services.context import Yard
from config.settings import ServerSettings
from tests.cluster import Cluster
from tests.databases import Databases
from tests.migrated import migrate
from tests.yards import USER, Controller, batch, machine, new_yard, validated

pytestmark = pytest.mark.postgres

AHEAD = 500
"""Transactions that the old cluster has counted more than the other ever counts in these tests."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Cluster]:
    """A second cluster, which has hardly begun to count."""
    found = Cluster()
    yield found
    found.stop()


@pytest.fixture
def yard(postgres_databases: Databases, elsewhere: Cluster, tmp_path: Path) -> Iterator[Yard]:
    """A yard whose cluster has counted far beyond the other one."""
    with closing(Store(elsewhere.url("postgres"))) as other:
        far = highest(other) + AHEAD
    with closing(Store(postgres_databases.copy_of(migrate))) as store:
        while highest(store) < far:
            with store.begin() as session:
                session.connection().execute(text("SELECT pg_current_xact_id()"))
        yield new_yard(store, tmp_path / "blobs")


@pytest.fixture
def moved(
    yard: Yard, elsewhere: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Yard]]:
    """Dump, and restore elsewhere as an operator does by PostgreSQL's own programs."""
    monkeypatch.setenv("PATH", elsewhere.path)
    with closing(Store(elsewhere.url(elsewhere.create()))) as store:

        def move() -> Yard:
            backups_sql.copy(yard.store, tmp_path / "gpuyard.dump")
            with backups_sql.put_back(store, tmp_path / "gpuyard.dump"):
                pass
            return replace(yard, store=store)

        yield move


def highest(store: Store) -> int:
    with store.read() as session:
        return int(session.connection().scalar(text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")) or 0)


def numbered_ahead(store: Store) -> int:
    """How many rows this cluster has not numbered."""
    with store.read() as session:
        found = [*session.exec(select(Event.txid)), *session.exec(select(Segment.txid))]
        highest_here = int(
            session.connection().scalar(text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")) or 0
        )
    return sum(txid is not None and txid >= highest_here for txid in found)


def test_what_was_written_in_the_old_cluster_is_seen_after_the_next_start(
    yard: Yard, moved: Callable[[], Yard], tmp_path: Path
) -> None:
    ended, running = validated(yard), validated(yard, 8)
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(ended, grant)
    Controller(yard).works()
    assert batch(yard, ended).state == "completed"
    first, _ = one.claim(want=8).grants
    one.hand_in(running, {first.lease_id: [4, 5]} if first.first_row else {first.lease_id: [0, 1]})
    before = [event.type for event in events.of_batch(yard, USER, ended, 0).events]
    lines = list(results.read(yard, USER, running).lines)
    assert before
    assert len(lines) == 2
    there = moved()
    assert events.of_batch(there, USER, ended, 0).events == [], "the fault that this is about"
    main.begin(there, ServerSettings(data_dir=tmp_path))
    look = events.of_batch(there, USER, ended, 0)
    assert [event.type for event in look.events] == before
    assert look.last, "the stream of an ended batch ends"
    assert list(results.read(there, USER, running).lines) == lines


def test_a_database_restored_before_this_version_is_settled_by_its_first_start(
    yard: Yard, moved: Callable[[], Yard]
) -> None:
    """No cluster is known then; and what the new cluster has numbered since lies behind what the old one had."""
    validated(yard)
    there = moved()
    with there.store.begin() as session:
        events_sql.record(session, now=there.store.now(session), type="t", subject="new", actor="test")
    assert restored.check(there.store) > 0
    assert numbered_ahead(there.store) == 0
    with there.store.read() as session:
        assert events_sql.last_seq(session) == max(session.exec(select(Event.seq)))  # type: ignore[type-var]


def test_restore_and_migrate_settle_it_though_no_process_starts(yard: Yard, moved: Callable[[], Yard]) -> None:
    validated(yard)
    there = moved()
    assert numbered_ahead(there.store) > 0
    backups.settle(there.store)
    assert numbered_ahead(there.store) == 0


def test_the_first_number_that_this_cluster_has_not_given_out_is_settled_and_the_last_given_out_is_kept(
    yard: Yard,
) -> None:
    validated(yard)
    with yard.store.begin() as session:
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})  # one snapshot throughout
        session.connection().execute(text("SELECT pg_current_xact_id()"))
        first_not_given = text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        least = int(session.connection().scalar(first_not_given) or 0)
        given, ahead = session.exec(select(Event).order_by(col(Event.seq)).limit(2)).all()
        given.txid, ahead.txid = least - 1, least
        session.add_all([given, ahead])
        session.flush()
        assert restored.settle_numbers(session) == 1
        session.expire_all()
        assert (given.txid, ahead.txid) == (least - 1, 0)


def test_a_start_in_a_known_cluster_reads_one_row_and_no_event(yard: Yard, moved: Callable[[], Yard]) -> None:
    validated(yard)
    there = moved()
    restored.check(there.store)
    with there.store.begin() as session:  # what no start may look for again
        session.connection().execute(text("UPDATE event SET txid = 1000000000"))
    assert restored.check(there.store) == 0
    assert numbered_ahead(there.store) > 0


def test_back_in_the_old_cluster_it_is_another_one_again(yard: Yard, moved: Callable[[], Yard]) -> None:
    there = moved()
    assert restored.check(yard.store) == 0
    restored.check(there.store)
    with yard.store.read() as session, there.store.read() as other:
        old, new = session.get_one(KnownCluster, 1), other.get_one(KnownCluster, 1)
        assert old.system_identifier != new.system_identifier
        there_says = new.system_identifier
    with yard.store.begin() as session:  # as its dump would say
        session.get_one(KnownCluster, 1).system_identifier = there_says
        session.connection().execute(
            text("INSERT INTO event (at, type, subject, actor, txid) VALUES (1, 't', 's', 'a', 1000000000)")
        )
    assert restored.check(yard.store) == 1


def test_many_processes_start_while_transactions_run(yard: Yard, moved: Callable[[], Yard]) -> None:
    """Each ends, and no number of this cluster is taken from a row that is written meanwhile."""
    for _ in range(5):
        validated(yard)
    there = moved()
    store = there.store
    with store.begin() as open_one:
        events_sql.record(open_one, now=store.now(open_one), type="t", subject="open", actor="test")
        open_one.flush()
        number = open_one.connection().scalar(text("SELECT pg_current_xact_id()::text::bigint"))
        found: list[int] = []
        starts = [threading.Thread(target=lambda: found.append(restored.check(store))) for _ in range(6)]
        for start in starts:
            start.start()
        for start in starts:
            start.join(30)
        assert len(found) == 6
        assert sum(count > 0 for count in found) == 1, "one did it, the others found nothing to do"
    with store.read() as session:
        assert session.exec(select(Event.txid).where(Event.subject == "open")).one() == number
        assert numbered_ahead(store) == 0


def test_without_the_right_to_ask_for_the_cluster_each_start_looks(yard: Yard, moved: Callable[[], Yard]) -> None:
    validated(yard)
    there = moved()
    with there.store.begin() as session:
        _forbid(session)
    with closing(Store(str(there.store.engine.url.set(username="plain")))) as plain:
        assert restored.check(plain) > 0
        assert restored.check(plain) == 0
        assert numbered_ahead(plain) == 0
    with there.store.read() as session:
        assert session.get(KnownCluster, 1) is None


def _forbid(session: Session) -> None:
    for statement in (
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        "CREATE ROLE plain LOGIN",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO plain",
    ):
        session.connection().execute(text(statement))
