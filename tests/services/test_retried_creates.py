"""A create that is sent again makes one batch, whichever of the two comes first (PROTOCOL 9)."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import Session, select

from app.blobs.local import LocalBlobs
from app.blobs.store import Stored
from app.db import exclusive
from app.db.store import Store
from app.db.tables import Batch, Blob
from app.domain.errors import BadRequest
from app.schemas.batches import NewBatch
from app.services import batches, beginnings, files, tokens
from app.services.context import BatchRing, Caller, ControlRing, Yard
from app.services.files import Upload
from tests.databases import Databases

KEY = "gk-test"
BOUND = 20.0


class Bells:
    """Remembers what was rung."""

    heard = True
    trouble = None

    def __init__(self) -> None:
        self.control_rung: list[str] = []

    def publish(self, ring: BatchRing | ControlRing) -> None:
        self.control_rung.append(ring.batch_id)

    def batch(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None: ...

    def control(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:  # noqa: ARG002 - the protocol's
        self.control_rung.append(batch_id)

    def stop(self, batch_id: str) -> None: ...

    def call(self, pool: str) -> None: ...


@pytest.fixture
def bells() -> Bells:
    return Bells()


@pytest.fixture
def yard(store: Store, bells: Bells, tmp_path: Path) -> Yard:
    made = Yard(store=store, blobs=LocalBlobs(tmp_path / "blobs"), bells=bells)
    beginnings.first_key(made, KEY)
    beginnings.declare_pools(made, {}, default="gpu")
    return made


@pytest.fixture
def caller(yard: Yard) -> Caller:
    return tokens.authenticate(yard, KEY)


@pytest.fixture
def wanted(yard: Yard, caller: Caller) -> NewBatch:
    file = files.create(yard, caller, files.begin(yard, caller), Stored(0, "0" * 64, ""), Upload("batch", "in.jsonl"))
    return NewBatch(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")


def count(yard: Yard) -> int:
    with yard.store.read() as session:
        return len(session.exec(select(Batch)).all())


def inserted(session: Session, yard: Yard, caller: Caller, wanted: NewBatch) -> Batch:
    """A batch as `create` makes it, in a transaction that goes on."""
    now = yard.store.now(session)
    batch = batches._new(session, caller, wanted, pool="gpu", now=now, expires_at=now + timedelta(days=1))
    batches._insert(session, yard, caller, batch)
    return batch


def test_the_first_try_and_its_retry_at_once_make_one_batch(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    """The original holds the lock and has not committed; the retry overtakes it, and waits."""
    holding, go = threading.Event(), threading.Event()
    digest = batches.args_digest(wanted, pool="gpu")

    def original() -> str:
        with yard.store.begin() as session:
            exclusive.hold(session, [f"create:{caller.token_id}:{digest}"])
            holding.set()
            assert go.wait(BOUND)
            batch = inserted(session, yard, caller, wanted)
            batch.args_digest = digest
            return batch.id

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(original)
        assert holding.wait(BOUND)
        retry = threads.submit(batches.create, yard, caller, wanted, retry_count=1)
        with pytest.raises(TimeoutError):
            retry.result(timeout=0.3)
        go.set()
        assert retry.result(BOUND).id == first.result(BOUND)
    assert count(yard) == 1


def test_retries_of_one_number_at_once_each_make_their_own(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    """Eight processes that share a key and each lost one answer: none of them is answered with another's batch."""
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _n: batches.create(yard, caller, wanted, retry_count=1).id, range(8)))
    assert count(yard) == len(set(made)) == 8


def test_the_same_try_twice_is_another_batch(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    first = batches.create(yard, caller, wanted)
    second = batches.create(yard, caller, wanted)
    assert first.id != second.id
    # The retry is the later one's.
    assert batches.create(yard, caller, wanted, retry_count=1).id == second.id
    # And a second retry of number 1 is the other one's.
    assert batches.create(yard, caller, wanted, retry_count=1).id == first.id
    assert batches.create(yard, caller, wanted, retry_count=1).id not in {first.id, second.id}


def test_a_retry_goes_on_counting(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    made = {batches.create(yard, caller, wanted, retry_count=n).id for n in (0, 1, 2)}
    assert len(made) == 1


def _retrieve(yard: Yard, caller: Caller, batch_id: str) -> None:
    batches.retrieve(yard, caller, batch_id)


def _list(yard: Yard, caller: Caller, _batch_id: str) -> None:
    batches.listed(yard, caller)


@pytest.mark.parametrize("look", [_retrieve, _list])
def test_what_its_key_has_seen_is_no_first_try(
    yard: Yard, caller: Caller, wanted: NewBatch, look: Callable[[Yard, Caller, str], None]
) -> None:
    first = batches.create(yard, caller, wanted)
    look(yard, caller, first.id)
    assert batches.create(yard, caller, wanted, retry_count=1).id != first.id


def test_what_another_key_has_seen_still_is(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    first = batches.create(yard, caller, wanted)
    other = Caller(caller.org_id, None, "other", caller.scopes)
    batches.retrieve(yard, other, first.id)
    assert batches.create(yard, caller, wanted, retry_count=1).id == first.id


def test_two_minutes_later_a_retry_is_a_new_call(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    first = batches.create(yard, caller, wanted)
    yard.store.clock_shift = timedelta(seconds=119)
    assert batches.create(yard, caller, wanted, retry_count=1).id == first.id
    yard.store.clock_shift = timedelta(seconds=121)
    assert batches.create(yard, caller, wanted, retry_count=2).id != first.id


@pytest.mark.parametrize("change", [{"priority": 1}, {"metadata": {"a": "b"}}, {"completion_window": "1h"}])
def test_other_arguments_are_another_call(
    yard: Yard, caller: Caller, wanted: NewBatch, change: dict[str, object]
) -> None:
    first = batches.create(yard, caller, wanted)
    assert batches.create(yard, caller, wanted.model_copy(update=change), retry_count=1).id != first.id


def test_the_default_pool_by_name_is_the_same_call(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    first = batches.create(yard, caller, wanted)
    assert batches.create(yard, caller, wanted.model_copy(update={"pool": "gpu"}), retry_count=1).id == first.id


def test_one_key_of_idempotency_from_eight_threads_makes_one_batch(
    yard: Yard, caller: Caller, wanted: NewBatch, bells: Bells
) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _n: batches.create(yard, caller, wanted, idempotency_key="k").id, range(16)))
    assert count(yard) == len(made) == 1
    assert bells.control_rung == list(made)


def test_control_work_is_rung_after_the_commit_and_once_a_batch(
    yard: Yard, caller: Caller, wanted: NewBatch, bells: Bells
) -> None:
    first = batches.create(yard, caller, wanted)
    batches.create(yard, caller, wanted, retry_count=1)
    assert bells.control_rung == [first.id]


@pytest.fixture
def two_stores(postgres_databases: Databases) -> Iterator[tuple[Store, Store]]:
    url = postgres_databases.empty()
    stores = (Store(url), Store(url))
    yield stores
    for store in stores:
        store.close()


@pytest.mark.postgres
def test_names_are_locked_in_one_order(two_stores: tuple[Store, Store]) -> None:
    """Two transactions that share two names, given in opposite orders, do not wait for each other for ever."""
    names = ["a", "b"]

    def lock(store: Store, order: list[str]) -> None:
        def work(session: Session) -> None:
            exclusive.hold(session, order)

        for _ in range(50):
            with store.begin() as session:
                work(session)

    with ThreadPoolExecutor(2) as threads:
        for done in [
            threads.submit(lock, two_stores[0], names),
            threads.submit(lock, two_stores[1], names[::-1]),
        ]:
            done.result(BOUND)


def test_a_file_that_is_deleted_while_a_batch_is_made_keeps_its_content(
    yard: Yard, caller: Caller, wanted: NewBatch
) -> None:
    """The batch is there and not committed; the delete waits for it, and then sees it."""
    with ThreadPoolExecutor(1) as threads:
        with yard.store.begin() as session:
            inserted(session, yard, caller, wanted)
            deleted = threads.submit(files.delete, yard, caller, wanted.input_file_id)
            with pytest.raises(TimeoutError):
                deleted.result(timeout=0.3)
        assert deleted.result(BOUND).deleted
    with yard.store.read() as session:
        assert session.exec(select(Blob)).one().unreferenced_at is None


def test_a_deleted_files_content_goes_when_no_batch_needs_it(yard: Yard, caller: Caller, wanted: NewBatch) -> None:
    files.delete(yard, caller, wanted.input_file_id)
    with yard.store.read() as session:
        assert session.exec(select(Blob)).one().unreferenced_at is not None
    with pytest.raises(BadRequest):
        batches.create(yard, caller, wanted)
