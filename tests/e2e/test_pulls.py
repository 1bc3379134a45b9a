"""A worker that is killed while its runtime fetches a model: its shards are run by whoever has the model."""

import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.test_lost_workers import job_of_each_lease
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 300
ENDLESS = "tests.fakes.pulling_executor:PullingExecutor"


def test_what_a_worker_was_fetching_a_model_for_is_taken_over_when_it_is_killed(shared_yard: Yard) -> None:
    yard = shared_yard
    yard.http.post("/v1/pools", json={"name": "fetching"}).raise_for_status()
    yard.worker("fetcher", pool="fetching", runtime=ENDLESS, runtime_url="pulling:", pull_models="true")
    yard.until_present("fetcher")
    batch = yard.submit(marked("fetched", ROWS), pool="fetching")

    def says() -> str:
        return str(batch.inner()["waiting_reason"])

    until(lambda: "worker fetcher fetches model mock" in says(), "the batch says that its model is fetched")
    until(lambda: yard.http.get("/v1/workers/fetcher").json()["activity"] == "downloading_model", "its worker, too")

    yard.workers["fetcher"].kill()
    yard.worker("owner", pool="fetching")
    yard.until_present("owner")
    batch.ended(seconds=60)

    assert_each_row_once(batch, "fetched", ROWS)
    granted = job_of_each_lease(yard.events(batch.id))
    expired = [event["data"]["lease"] for event in yard.events(batch.id) if event["type"] == "lease.expired"]
    assert {granted[lease][0] for lease in expired} == {"fetcher"}
