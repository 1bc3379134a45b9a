"""All shares of this worker, and the one way into a new one: through the gate, then a claim (PROTOCOL 6)."""

import threading
from collections.abc import Callable

import structlog

from app.client.errors import Dismissed, Refused, TryLater
from app.schemas.claims import ReleaseRequest
from app.worker.claims import Claimed, claim
from app.worker.clock import Clock
from app.worker.gate import Gate, Permit
from app.worker.held import HeldLeases
from app.worker.kit import Kit
from app.worker.outbox import TRY_SECONDS
from app.worker.setting_up import CannotStartError
from app.worker.share import Share

log = structlog.get_logger("gpuyard.worker")


class Shares:
    """Thread-safe. `idle_seconds` counts since the last share ended; `on_ended` is called when one has."""

    def __init__(self, kit: Kit, gate: Gate, clock: Clock, *, on_ended: Callable[[], None] = lambda: None) -> None:
        self._kit = kit
        self._gate = gate
        self._clock = clock
        self._on_ended = on_ended
        self._lock = threading.Lock()
        self._none_left = threading.Condition(self._lock)
        self._shares: list[Share] = []
        self._claiming = 0
        self._idle_since = clock()
        self._missed = False

    def run(self, batch_id: str | None = None) -> None:
        """Run one share in this thread, `batch_id` being a hint; returns at once when there is no permit or no work."""
        permit = self._gate.try_enter()
        if permit is None:
            self._missed = True
            return
        self._missed = False
        try:
            ran = self._run(permit, batch_id)
        except (TryLater, Refused) as error:
            log.warning("claim.failed", why=str(error), request_id=error.request_id)
            return
        except Dismissed as error:
            self._kit.on_dismissed(error)
            return
        except CannotStartError:
            return
        finally:
            permit.close()
        if ran:
            self._on_ended()
        if ran or self._missed:  # who rang while our claim was out may have known more than its answer
            self.ring()

    def ring(self) -> None:
        """There may be work: look, in a thread of our own."""
        if not self._gate.has_room:
            self._missed = True
        elif self._kit.may_take:
            try:
                threading.Thread(target=self.run, name="gpuyard-share", daemon=True).start()
            except RuntimeError as error:
                self._kit.starts.failed(error)

    @property
    def held(self) -> HeldLeases:
        """The leases of all of them."""
        return self._kit.held

    def all(self) -> list[Share]:
        """The shares that go on."""
        with self._lock:
            return list(self._shares)

    def wait_none(self, timeout: float) -> bool:
        """Wait until every share has ended, and every claim that may bring one is answered."""
        with self._lock:
            return self._none_left.wait_for(lambda: not self._shares and not self._claiming, timeout)

    @property
    def idle_seconds(self) -> float | None:
        """How long there has been nothing to do; None while there is something, or a claim is out."""
        with self._lock:
            return None if self._shares or self._claiming else self._clock() - self._idle_since

    def begin(self) -> None:
        """Count idle time from now: the worker is ready."""
        with self._lock:
            self._idle_since = self._clock()

    def _run(self, permit: Permit, batch_id: str | None) -> bool:
        begun = self._begin(permit, batch_id)
        if begun is None:
            return False
        share, claimed = begun
        try:
            if not self._gate.is_open:  # a drain began while the claim was out
                share.wind_down("the worker drains")
            share.run(claimed)
        except CannotStartError as error:
            # By this thread, for there is no other. What this call does not reach is released as a ghost.
            leases = [grant.lease_id for grant in claimed.grants]
            log.error("share.cannot_start", batch_id=claimed.batch.id, leases=leases, why=str(error))  # noqa: TRY400
            self._kit.starts.failed(error)
            reason = f"it could not be started: {error}"[:200]
            self._kit.plane.release(
                ReleaseRequest(worker_id=self._kit.worker_id, leases=leases, reason=reason, unstarted=True),
                deadline_seconds=TRY_SECONDS,
            )
            raise
        finally:
            with self._lock:
                self._shares.remove(share)
                self._idle_since = self._clock()
                self._none_left.notify_all()
        return True

    def _begin(self, permit: Permit, batch_id: str | None) -> tuple[Share, Claimed] | None:
        """Claim. Who leaves waits for it: a lease that comes when nobody is there any more would count as lost."""
        if not self._kit.may_take:
            return None
        with self._lock:
            self._claiming += 1
        try:
            claimed = claim(self._kit, batch_id, started=False, want_rows=self._kit.permits.limit)
            if claimed is None:
                return None
            # While its model is fetched a batch has given its slot on, and may come once more before that is known.
            if any(share.batch.id == claimed.batch.id and share.join(claimed) for share in self.all()):
                return None
            share = Share(self._kit, permit, claimed.batch)
            with self._lock:
                self._shares.append(share)
            return share, claimed
        finally:
            with self._lock:
                self._claiming -= 1
                self._none_left.notify_all()
