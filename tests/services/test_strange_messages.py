"""What a caller may send reaches the database, or is refused by its type: never an error of ours."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.schemas.claims import ClaimRequest, FailureReport, ReleaseRequest
from app.schemas.segments import HandInHeader
from app.schemas.workers import MAX_MODELS, Bye, Heartbeat, Hello, HostSample
from app.services.context import Yard
from tests.yards import Machine, machine, validated

LAST = 2**63 - 1
CROWDED = {"name": "r", "kind": "vllm", "alive": True, "models": ["m"] * MAX_MODELS}


def test_the_highest_lease_id_is_stale_everywhere(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    assert one.beat(LAST, unstarted=[LAST], spooled=[LAST]).leases == {LAST: "stale"}
    assert one.release(LAST).leases == {LAST: "stale"}
    assert one.fail(LAST).leases == {LAST: "stale"}
    assert one.hand_in(batch_id, {LAST: [0]}, ends=[LAST]).parts == {LAST: "stale"}
    assert one.restarted().hello(held=[LAST]).leases == {LAST: "stale"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Heartbeat, {"leases": [2**63]}),
        (Heartbeat, {"current_invocations": 2**31}),
        (Heartbeat, {"boot_id": "a\0b"}),
        (HostSample, {"load1": float("nan")}),
        (HostSample, {"disk_free": 10**400}),
        (Heartbeat, {"runtimes": [CROWDED] * 3}),
        (Hello, {"runtimes": [CROWDED] * 3}),
        (Heartbeat, {"runtimes": [{**CROWDED, "models": ["x" * 500] * 600}]}),
        (ReleaseRequest, {"leases": [-1]}),
        (ReleaseRequest, {"worker_id": "\0"}),
        (FailureReport, {"lease_id": 2**64}),
        (FailureReport, {"request_id": "a\0"}),
        (ClaimRequest, {"batch_id": "\0"}),
        (ClaimRequest, {"request_id": "é"}),
        (HandInHeader, {"batch_id": "\0"}),
        (
            HandInHeader,
            {"parts": [{"lease_id": 1, "seq": 2**31, "rows": "0", "completed": 1, "failed": 0, "length": 1}]},
        ),
        (Bye, {"inflight_abandoned": 2**40}),
    ],
)
def test_what_no_database_takes_is_refused_by_its_type(kind: Any, change: dict[str, Any]) -> None:
    good = {
        "name": "one",
        "install_id": "i",
        "pool": "gpu",
        "transport": "http",
        "boot_id": "b",
        "worker_id": "w",
        "request_id": "r",
        "leases": [1],
        "lease_id": 1,
        "error": "e",
        "batch_id": "batch_1",
        "reason": "signal",
    }
    kind.model_validate(good)
    with pytest.raises(ValidationError):
        kind.model_validate(good | change)


def test_odd_text_is_stored_as_it_is(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    assert one.fail(grant.lease_id, "\0 é").leases == {grant.lease_id: "ended"}
    assert Machine(yard, "two", install_id="two").hello(hostname="h\0st").worker_id
    assert one.claim(hint=batch_id).grants
