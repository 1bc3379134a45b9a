"""Asking for shards (PROTOCOL 6)."""

from dataclasses import dataclass

from ulid import ULID

from app.client.control_plane import CALL_SECONDS
from app.domain.eligibility import No
from app.schemas.claims import BatchBrief, ClaimRequest, Grant
from app.worker.kit import Kit


@dataclass(frozen=True, slots=True)
class Claimed:
    """Shards of one batch, and when the claim that brought them was sent: their self-stop clocks begin there."""

    batch: BatchBrief
    grants: list[Grant]
    sent_at: float


def claim(kit: Kit, batch_id: str | None, *, started: bool, want_rows: int) -> Claimed | None:
    """Claim once, under a request id of its own. None: there is nothing for us now, or we are not ready (P-08).

    Raises app.client.errors. What came with a lost answer is released by the control plane, because no heartbeat
    lists it any more, nor this claim (PROTOCOL 2).
    """
    if not kit.is_ready():
        return None
    request = ClaimRequest(
        worker_id=kit.worker_id,
        boot_id=kit.boot_id,
        request_id=str(ULID()),
        batch_id=batch_id,
        started=started,
        want_rows=max(1, min(want_rows, 1_000_000)),
    )
    sent_at = kit.clock()
    # Its leases' clocks begin with the first try: an answer after a quarter of it would bring hardly anything.
    with kit.held.claiming(request.request_id):
        answer = kit.plane.claim(request, deadline_seconds=min(CALL_SECONDS, kit.held.self_stop_seconds / 4))
    if answer.no is No.DRAINING:
        kit.told_to_drain()
    if answer.batch is None or not answer.grants:
        return None
    return Claimed(answer.batch, answer.grants, sent_at)
