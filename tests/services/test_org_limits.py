"""What an org may have at most: refused above it, exactly, and free again when something is gone."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sqlmodel import col, func, select

from app.db.store import Store
from app.db.tables import File, Org
from app.domain.errors import LimitReached
from app.domain.org_limits import OrgLimits
from app.schemas.pools import NewPool
from app.schemas.webhooks import NewWebhookEndpoint
from app.services import files, pools, retention, webhooks
from app.services.context import Yard
from config.org_limits import OrgLimitSettings
from tests.interleaving import doing, held
from tests.yards import (
    USER,
    Controller,
    cancel,
    created,
    grants_of,
    input_file,
    later,
    machine,
    new_yard,
    result_files,
    validated,
)

FILE_BYTES = 100


def limited(store: Store, folder: Path, **bounds: int) -> Yard:
    return new_yard(store, folder / "blobs", org=OrgLimits(**bounds))


def upload(yard: Yard) -> str:
    return input_file(yard, 0, content=b"x" * FILE_BYTES)


def pool(yard: Yard, name: str) -> str:
    return pools.create(yard, USER, NewPool(name=name, shared=False)).name


def endpoint(yard: Yard) -> str:
    wanted = NewWebhookEndpoint(name="n", url="http://127.0.0.1:9/", event_types=["batch.completed"])
    return webhooks.create(yard, USER, wanted).id


def counted(yard: Yard) -> tuple[tuple[int, int], tuple[int, int]]:
    """What an org is said to have, and what it has."""
    with yard.store.read() as session:
        org = session.get_one(Org, USER.org_id)
        found = select(func.count(), func.coalesce(func.sum(File.bytes), 0)).where(col(File.hidden_at).is_(None))
        return (org.files, org.file_bytes), tuple(session.exec(found).one())  # type: ignore[return-value]


KINDS: dict[str, tuple[dict[str, int], Callable[[Yard, int], object], str]] = {
    "files": ({"files": 2}, lambda yard, _: upload(yard), "INSERT INTO file"),
    "file_bytes": ({"file_bytes": 2 * FILE_BYTES}, lambda yard, _: upload(yard), "INSERT INTO file"),
    "batches": ({"batches": 2}, lambda yard, _: created(yard), "INSERT INTO batch"),
    "pools": ({"pools": 2}, lambda yard, n: pool(yard, f"own-{n}"), "INSERT INTO pool"),
    "webhook_endpoints": ({"webhook_endpoints": 2}, lambda yard, _: endpoint(yard), "INSERT INTO webhook_endpoint"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_place_is_given_once_however_two_calls_race_for_it(store: Store, tmp_path: Path, kind: str) -> None:
    bounds, make, insert = KINDS[kind]
    yard = limited(store, tmp_path, **bounds)
    make(yard, 0)
    with held(yard.store, lambda: make(yard, 1), at_commit_after=insert) as first:
        second = doing(lambda: make(yard, 2))
        second.assert_waits(yard.store)
    first.result()
    used = f"{bounds[kind]:,} of at most {bounds[kind]:,} "
    with pytest.raises(LimitReached, match=f"limit org_{kind} reached: this org has {used}") as refused:
        second.result()
    assert (refused.value.status, refused.value.code) == (429, "limit_reached")
    assert f"GPUYARD_ORG_{kind.upper()}" in refused.value.message


def test_files_that_go_make_room_and_the_count_is_what_is_there(store: Store, tmp_path: Path) -> None:
    """By a delete, by the end of their lives; results are stored whatever the org has."""
    yard = limited(store, tmp_path, files=2)
    batch_id = validated(yard)
    last = upload(yard)
    one = machine(yard)
    one.hand_in(batch_id, {lease_id: range(4) for lease_id in grants_of(one)}, ends=list(one.grants))
    Controller(yard).works()
    assert result_files(yard, batch_id)
    assert counted(yard)[0] == counted(yard)[1]
    assert counted(yard)[0][0] == 3
    with pytest.raises(LimitReached):
        files.begin(yard, USER)  # before a byte of an upload is taken
    files.delete(yard, USER, last)
    with pytest.raises(LimitReached):
        upload(yard)
    later(yard, yard.limits.file_retention_seconds + 1, listening=False)
    assert retention.expire_files(yard, 100) == 1  # the input; results live on
    assert counted(yard)[0] == counted(yard)[1]
    upload(yard)
    assert counted(yard)[0] == counted(yard)[1]


def test_a_batch_that_ends_makes_room_for_another(store: Store, tmp_path: Path) -> None:
    yard = limited(store, tmp_path, batches=1)
    first = created(yard)
    with pytest.raises(LimitReached, match="cancel some"):
        created(yard)
    cancel(yard, first)
    Controller(yard).works()
    created(yard)


def test_shared_pools_are_nobodys(store: Store, tmp_path: Path) -> None:
    yard = limited(store, tmp_path, pools=1)
    pool(yard, "own-1")
    pools.create(yard, USER, NewPool(name="shared-1", shared=True))
    with pytest.raises(LimitReached):
        pool(yard, "own-2")


def test_one_orgs_quota_is_not_anothers(store: Store, tmp_path: Path) -> None:
    yard = limited(store, tmp_path, files=1)
    upload(yard)
    other = replace(USER, org_id="org_2")
    with yard.store.begin() as session:
        session.add(Org(id="org_2", name="two", created_at=yard.store.now(session)))
    files.begin(yard, other)


def test_each_bound_has_its_setting_with_the_same_default() -> None:
    settings = OrgLimitSettings()
    assert {f"org_{bound.name}" for bound in fields(OrgLimits)} == {
        name for name in OrgLimitSettings.model_fields if name.startswith("org_")
    }
    assert OrgLimits() == OrgLimits(
        **{bound.name: getattr(settings, f"org_{bound.name}") for bound in fields(OrgLimits)}
    )
