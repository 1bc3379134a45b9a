"""Who delivers what: one live delivery for each endpoint, however many control workers claim at the same moment."""

from uuid import uuid4

from sqlmodel import col, select

from app.db.tables import Job, Lease
from app.domain import webhooks as rules
from app.domain.jobs import ControlVerb
from app.domain.leases import LIVE
from app.schemas.webhooks import NewWebhookEndpoint
from app.services import control, webhooks
from app.services.context import Yard
from app.services.control import ControlGrant
from tests.interleaving import doing, held
from tests.yards import USER, Controller, assert_sound, cancel, created


def endpoint(yard: Yard, name: str) -> str:
    wanted = {"name": name, "url": "http://127.0.0.1:9/", "event_types": list(rules.EVENT_TYPES)}
    return webhooks.create(yard, USER, NewWebhookEndpoint.model_validate(wanted)).id


def ended(yard: Yard) -> str:
    batch_id = created(yard, 1)
    cancel(yard, batch_id)
    Controller(yard).works()
    return batch_id


def live(yard: Yard) -> list[str]:
    """The endpoints of all live deliveries."""
    query = select(Job.endpoint_id).join(Lease, col(Lease.job_id) == col(Job.id))
    with yard.store.read() as session:
        return list(session.exec(query.where(col(Job.verb) == ControlVerb.DELIVER, col(Lease.state).in_(LIVE))))


def test_two_control_workers_that_claim_at_once_get_no_two_deliveries_of_one_endpoint(yard: Yard) -> None:
    one, other = Controller(yard, name="one").hello(), Controller(yard, name="other").hello()
    first = endpoint(yard, "first")
    ended(yard)
    ended(yard)

    def claims(worker: Controller) -> ControlGrant | None:
        return control.claim_delivery(yard, worker.id, uuid4().hex)

    # The first has leased and is about to commit: the second skips what it locked, and cannot see what it leased.
    with held(yard.store, lambda: claims(one), at_commit_after="INSERT INTO lease") as early:
        late = doing(lambda: claims(other))
        late.assert_waits(yard.store)
    assert early.result() is not None
    assert late.result() is None
    assert live(yard) == [first]
    assert_sound(yard)


def test_one_that_lost_an_endpoint_takes_the_delivery_of_another_one(yard: Yard) -> None:
    one, other = Controller(yard, name="one").hello(), Controller(yard, name="other").hello()
    first = endpoint(yard, "first")
    ended(yard)
    ended(yard)
    second = endpoint(yard, "second")
    last = ended(yard)

    with held(
        yard.store, lambda: control.claim_delivery(yard, one.id, "r1"), at_commit_after="INSERT INTO lease"
    ) as early:
        late = doing(lambda: control.claim_delivery(yard, other.id, "r2"))
        late.assert_waits(yard.store)
    found = late.result()
    assert early.result() is not None
    assert found is not None
    assert found.batch_id == last
    assert sorted(live(yard)) == sorted([first, second])


def test_a_claim_passes_by_the_orgs_that_have_enough(yard: Yard) -> None:
    endpoint(yard, "mine")
    batch_id = ended(yard)
    worker = Controller(yard).hello()
    assert control.claim_delivery(yard, worker.id, "r1", but_orgs=[USER.org_id]) is None
    found = control.claim_delivery(yard, worker.id, "r2", but_orgs=["org_2"])
    assert found is not None
    assert (found.batch_id, found.org_id) == (batch_id, USER.org_id)
