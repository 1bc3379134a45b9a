"""PROTOCOL 8: contents go when nothing refers to them, and never while something does or soon will."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import select

from app.blobs.local import LocalBlobs
from app.blobs.store import Stored
from app.db import retention as retention_sql
from app.db.tables import ApiToken, Blob, File, WebhookEndpoint
from app.domain.errors import NotFound, TryLater
from app.schemas.batches import NewBatch
from app.schemas.webhooks import NewWebhookEndpoint
from app.services import batches, blobs, files, webhooks
from app.services import retention as retention_service
from app.services.context import Yard
from app.services.files import Upload
from app.sweeps import retention
from tests.interleaving import doing, held
from tests.yards import (
    CHAT,
    USER,
    Controller,
    batch,
    created,
    events,
    input_file,
    later,
    machine,
    result_files,
    validated,
    worker,
)

DAY = 86_400
TOLD = ["batch.completed"]
UPLOAD = Upload(purpose="batch", filename="x")


def collect(yard: Yard) -> int:
    return retention.run_once(yard, 100)["contents"]


def keys(yard: Yard) -> set[str]:
    with yard.store.read() as session:
        return set(session.exec(select(Blob.key)))


def token(yard: Yard) -> str:
    with yard.store.begin() as session:
        now = yard.store.now(session)
        session.add(ApiToken(id="tok_1", org_id=USER.org_id, name="t", prefix="gk-", sha256="0", created_at=now))
    return "tok_1"


def key_of(yard: Yard, file_id: str) -> str:
    with yard.store.read() as session:
        return session.exec(select(File.blob_key).where(File.id == file_id)).one()


def test_a_write_that_never_ended_is_cleared_away_after_a_day(yard: Yard) -> None:
    key, _ = blobs.write(yard, USER.org_id, [b"half"])
    assert collect(yard) == 0
    later(yard, DAY + 1, listening=False)
    assert collect(yard) == 1
    assert key not in keys(yard)
    assert not yard.blobs.exists(key)


def test_a_writer_that_comes_back_too_late_is_refused(yard: Yard) -> None:
    key, stored = blobs.write(yard, USER.org_id, [b"late"])
    with yard.store.begin() as session:
        assert retention_sql.mark_orphans(session, [key], yard.store.now(session)) == [key]
    with pytest.raises(TryLater):
        files.create(yard, USER, key, stored, UPLOAD)


def test_a_writer_that_comes_while_its_content_is_deleted_is_refused(yard: Yard, tmp_path: Path) -> None:
    """Its row is still there: without the mark it would refer to a content that is gone."""
    key, stored = blobs.write(yard, USER.org_id, [b"late"])
    later(yard, DAY + 1, listening=False)
    met: list[str] = []

    class Contents(LocalBlobs):
        def delete(self, key: str) -> None:
            super().delete(key)
            met.append(key)
            with pytest.raises(TryLater):
                files.create(yard, USER, key, stored, UPLOAD)

    assert collect(replace(yard, blobs=Contents(tmp_path / "blobs"))) == 1
    assert met == [key]


def test_a_writer_that_was_quicker_keeps_its_content(yard: Yard) -> None:
    key, stored = blobs.write(yard, USER.org_id, [b"just in time"])
    files.create(yard, USER, key, stored, UPLOAD)
    with yard.store.begin() as session:
        assert retention_sql.mark_orphans(session, [key], yard.store.now(session)) == []
        retention_sql.delete_orphans(session, [key])
    assert key in keys(yard)
    assert isinstance(stored, Stored)


def test_equal_contents_are_two_and_the_end_of_one_leaves_the_other(yard: Yard) -> None:
    """Batch data is never shared: whoever guesses a content finds nobody's, and none waits for another's end."""
    written = [blobs.write(yard, USER.org_id, [b"the same"]) for _ in range(2)]
    first, second = (files.create(yard, USER, key, stored, UPLOAD) for key, stored in written)
    assert key_of(yard, first.id) != key_of(yard, second.id)
    files.delete(yard, USER, first.id)
    later(yard, 2 * DAY, listening=False)
    assert collect(yard) == 1
    assert yard.blobs.read(key_of(yard, second.id), 0, 8) == b"the same"


def test_a_deleted_input_stays_while_its_batch_reads_it(yard: Yard) -> None:
    batch_id = created(yard, window="14d")
    input_id = batch(yard, batch_id).input_file_id
    key = key_of(yard, input_id)
    files.delete(yard, USER, input_id)
    later(yard, 2 * DAY, listening=False)
    collect(yard)
    assert yard.blobs.exists(key)
    Controller(yard).works()
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(batch_id, grant)
    Controller(yard).works()
    assert len(result_files(yard, batch_id)[0]) == 4
    collect(yard)
    assert not yard.blobs.exists(key)


def test_refused_hand_ins_leave_nothing_behind(yard: Yard) -> None:
    batch_id = created(yard)
    Controller(yard).works()
    one = machine(yard)
    (grant,) = one.claim().grants
    one.hand_in(batch_id, {grant.lease_id: [0]})
    before = keys(yard)
    assert one.hand_in(batch_id, {grant.lease_id: [0]}).parts == {grant.lease_id: "conflict"}
    (refused,) = keys(yard) - before
    one.release(grant.lease_id)
    assert one.hand_in(batch_id, {grant.lease_id: [1]}).parts == {grant.lease_id: "stale"}
    assert keys(yard) - before == {refused}  # nothing of a stale one is written
    later(yard, DAY + 1, listening=False)
    collect(yard)
    assert refused not in keys(yard)
    assert not yard.blobs.exists(refused)


def test_old_events_are_forgotten_and_young_ones_are_not(yard: Yard) -> None:
    brief = replace(yard, limits=replace(yard.limits, event_retention_seconds=100))
    created(brief)
    assert retention.run_once(brief, 100)["events"] == 0
    later(yard, 101, listening=False)
    machine(yard)
    assert retention.run_once(brief, 100)["events"] >= 1
    assert retention.run_once(brief, 100)["events"] == 0


def test_workers_that_nobody_hears_of_are_forgotten_and_come_back_as_new(yard: Yard) -> None:
    old, here = machine(yard, "old"), machine(yard, "here")
    later(yard, 29 * DAY, listening=False)
    here.beat()
    later(yard, 2 * DAY, listening=False)
    assert retention.run_once(yard, 100)["workers"] == 1
    assert events(yard, old.id)[-1] == "worker.forgotten"
    with pytest.raises(NotFound) as unknown:
        old.beat()
    assert unknown.value.code == "no_worker"
    before = old.id
    old.hello()
    assert old.id != before
    here.beat()


def test_a_worker_that_a_lease_names_is_kept(yard: Yard) -> None:
    batch_id = validated(yard, window="30d")
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(batch_id, grant)
    long = replace(yard, limits=replace(yard.limits, job_retention_seconds=90 * DAY))
    later(yard, 60 * DAY, listening=False)
    assert retention.run_once(long, 100)["workers"] == 0
    assert worker(yard, one.id).id == one.id


def test_a_claim_that_came_first_keeps_its_worker(yard: Yard) -> None:
    validated(yard, window="30d")
    one = machine(yard)
    later(yard, 29 * DAY, listening=False)
    eager = replace(yard, limits=replace(yard.limits, worker_retention_seconds=1))
    with held(yard.store, one.claim, at_commit_after="UPDATE batch") as claim:
        sweep = doing(lambda: retention_service.forget_workers(eager, 100))
        if yard.store.dialect == "sqlite":
            sweep.assert_waits(yard.store)
        else:
            assert sweep.result() == 0, "it waited for a row that somebody is at"
    assert len(claim.result().grants) == 1
    sweep.result()
    assert worker(yard, one.id).id == one.id


def test_idempotency_keys_are_forgotten_when_they_mean_nothing_any_more(yard: Yard) -> None:
    caller = replace(USER, token_id=token(yard))
    wanted = NewBatch(input_file_id=input_file(yard, 4), endpoint=CHAT, completion_window="14d")
    first = batches.create(yard, caller, wanted, idempotency_key="mine")
    later(yard, DAY / 2, listening=False)
    assert retention.run_once(yard, 100)["keys"] == 0
    assert batches.create(yard, caller, wanted, idempotency_key="mine").id == first.id
    later(yard, DAY, listening=False)
    assert retention.run_once(yard, 100)["keys"] == 1
    assert batch(yard, first.id).idempotency_key is None
    assert batches.create(yard, caller, wanted, idempotency_key="mine").id != first.id


def test_an_endpoint_that_was_deleted_long_ago_goes_when_no_delivery_names_it(yard: Yard) -> None:
    new = NewWebhookEndpoint.model_validate({"name": "mine", "url": "https://[2606:4700::1]/", "event_types": TOLD})
    kept, gone = (webhooks.create(yard, USER, new).id for _ in range(2))
    webhooks.delete(yard, USER, gone)
    later(yard, 31 * DAY, listening=False)
    assert retention.run_once(yard, 100)["endpoints"] == 1
    with yard.store.read() as session:
        assert list(session.exec(select(WebhookEndpoint.id))) == [kept]


def test_one_kind_of_much_keeps_no_other_waiting(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PASS_SECONDS", 0)
    monkeypatch.setattr(retention, "STEPS", {"much": lambda _, limit: limit, "little": lambda _, __: 1})
    assert retention.run_once(yard, 10) == {"much": 10, "little": 1}
