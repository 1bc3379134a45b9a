"""One worker's share of one batch: claim shards, run their rows, claim on before they run out (DESIGN 1, PROTOCOL 6).

The thread that calls `run` is the conductor: it claims and loads. Lanes run rows, the settler hands in and ends
leases. Everybody who wants the share to end says so to its shards or its queue; the conductor goes home last.
"""

import math
import threading

import structlog

from app.client.errors import Dismissed, Refused, TryLater
from app.client.patience import pause
from app.domain.rows import Row, RowErrorCode
from app.schemas.claims import BatchBrief
from app.worker import loader
from app.worker.backlog import Backlog
from app.worker.canary import Canary
from app.worker.claims import Claimed, claim
from app.worker.gate import Permit
from app.worker.kit import Kit
from app.worker.lane import Lane
from app.worker.parking import Parking
from app.worker.prompt_pool import PromptPool
from app.worker.rate import RateMeter
from app.worker.row_by_row import RowByRow
from app.worker.row_queue import RowQueue
from app.worker.row_starts import RowStarts
from app.worker.setting_up import CannotStartError
from app.worker.settler import Settler
from app.worker.shard import Shard
from app.worker.units import Unit

AHEAD_SECONDS = 2.0
LAST_SECONDS = 0.3
"""Twice what a hand-in of two seconds' rows takes on a machine that is busy with running them."""
LOOK_SECONDS = 0.5
YOUNG_LOOK_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 30.0
"""So long a control plane that will not be asked for work is left alone at most; hand-ins go on."""
RUNTIME_DOWN = "its runtime is down"
MAX_WAITING = 4096
"""Rows that wait for a broken runtime do not count as work in hand, up to here."""
log = structlog.get_logger("gpuyard.worker")


class Share:
    """Made for the first shards of a batch; `run` returns when every lease it ever held has ended."""

    def __init__(self, kit: Kit, permit: Permit, batch: BatchBrief) -> None:
        self.batch = batch
        self._kit = kit
        self._permit = permit
        age = (batch.created_at, batch.id)
        self._rows = RowQueue(kit.runtimes, age)
        self._parked = Parking(kit.puller, batch.endpoint, self._queue_now)
        self._row_by_row = RowByRow(RowStarts(kit), lambda shard, row: self._rows.put([Unit(shard, row)]))
        self._backlog = Backlog(self._rows)
        self._rate = RateMeter(kit.clock)
        self._canary = Canary(self._rows, batch.canary_rows)
        self._lane = Lane(kit, batch.id, self._rows, self._rate, self._canary, forget=self._forget)
        self._settler = Settler(kit, batch.id, self._backlog, self._rate, self._canary)
        self._claims_on = True
        self._lock = threading.Lock()
        self._pool = PromptPool(age, kit.permits, self._rows, self._lane, kit.starved, kit.starts.failed)

    def run(self, claimed: Claimed) -> None:
        """Work until the batch has nothing more for this worker, or the worker nothing more for it.

        Raises CannotStartError when no threads can be started; then nothing of `claimed` was taken in.
        """
        structlog.contextvars.bind_contextvars(batch_id=self.batch.id)
        try:
            self._start()
            self._take(claimed)
            self._claim_on()
            with self._lock:
                self._claims_on = False
            self._wait_until_started()
            self._permit.all_started()
            self._kit.ring()
        finally:
            self._claims_on = False
            self._settler.close()
            self._settler.join()
            self._pool.close()
            structlog.contextvars.unbind_contextvars("batch_id")

    # --- what others ask of it, from any thread

    def fit(self) -> None:
        """The worker's permits changed, or threads can be started again."""
        try:
            self._pool.fit()
        except RuntimeError as error:
            self._kit.starts.failed(error)

    def join(self, claimed: Claimed) -> bool:
        """Take further shards of the batch in, from another thread. False: it claims no more, another share must."""
        with self._lock:
            if not self._claims_on:
                return False
            shards = self._added(claimed)
        self._load(shards)
        return True

    def wind_down(self, reason: str) -> None:
        """Start no row more, claim no more; what is in flight may end (drain)."""
        with self._lock:
            self._claims_on = False
            shards = self._settler.shards()
        for shard in sorted(shards, key=lambda shard: shard.is_started):
            shard.leave(reason)
        self._rows.nudge()

    def cut(self, reason: str) -> None:
        """Wind down and cut what is in flight."""
        self.wind_down(reason)
        for shard in self._settler.shards():
            shard.token.cancel()

    def give_up(self) -> None:
        """Cut, and send what is left once: the rest stays in the spool."""
        self.cut("the worker leaves")
        self._settler.give_up()

    def wake_due(self, now: float) -> None:
        """Bring back rows that were refused and have waited."""
        self._rows.wake_due(now)

    @property
    def next_due(self) -> float:
        """When the next such row comes back; infinity for never."""
        return self._rows.next_due

    def give_back_stranded(self) -> None:
        """Let go of the shards whose rows wait for runtimes that are down: another worker may have a better one."""
        ours = self._settler.shards()
        for shard in {unit.shard for unit in self._rows.stranded()}:
            if shard in ours and shard.is_open:
                log.warning("shard.given_back", lease_id=shard.lease_id, why=RUNTIME_DOWN)
                shard.stop(RUNTIME_DOWN)

    @property
    def rows_waiting(self) -> int:
        """Rows in hand that have not begun, for whatever they wait."""
        return len(self._rows) + len(self._parked)

    @property
    def abandoned(self) -> int:
        """Count the shards that were neither ended nor given back, and whose end does not lie in the spool either."""
        return sum(not shard.is_spooled for shard in self._settler.shards())

    # --- the conductor

    def _start(self) -> None:
        try:
            self._settler.start()
            self._pool.fit()
        except (RuntimeError, MemoryError) as error:
            raise CannotStartError(str(error) or type(error).__name__) from error
        self._kit.starts.worked()

    def _take(self, claimed: Claimed) -> None:
        with self._lock:
            shards = self._added(claimed)
            late = not self._claims_on
        if not late:
            self._load(shards)
        for shard in shards if late else ():
            shard.leave("the worker takes no more rows")

    def _added(self, claimed: Claimed) -> list[Shard]:
        if not claimed.batch.canary_rows:
            self._canary.let_all()
        shards = [Shard(grant, self._backlog, self._on_shard) for grant in claimed.grants]
        for shard in shards:
            self._settler.add(shard)
            self._kit.held.add(shard, claimed.sent_at)
            log.debug("shard.taken", batch_id=self.batch.id, lease_id=shard.lease_id, job_id=shard.grant.job_id)
        return shards

    def _load(self, shards: list[Shard]) -> None:
        for stretch in loader.stretches(shards):
            try:
                found = loader.fetch(self._kit, self.batch, stretch)
            except Dismissed as error:
                self._kit.on_dismissed(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs these shards and not the share
                self._not_loaded(stretch, error)
                continue
            for shard, content in found:
                self._fill(shard, content)

    def _not_loaded(self, shards: list[Shard], error: Exception) -> None:
        if isinstance(error, CannotStartError):
            self._kit.starts.failed(error)
            for shard in shards:
                shard.stop(f"it could not be started: {error}"[:200])
            return
        log.error("shard.not_loaded", leases=[shard.lease_id for shard in shards], exc_info=error)
        for shard in shards:
            shard.fail(RowErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _fill(self, shard: Shard, content: bytes) -> None:
        try:
            loader.fill(self.batch, shard, content, self._queue)
            if shard.grant.row_by_row:
                self._row_by_row.run(shard)  # it came alone, and claims bring nothing until it has ended
        except Exception as error:  # noqa: BLE001 - the same: rows that nobody queues any more would never end
            self._not_loaded([shard], error)

    def _queue(self, shard: Shard, rows: list[Row]) -> None:
        self._queue_now(shard, self._parked.sort_out(shard, rows))
        if len(self._parked) and not len(self._rows):
            # Nothing of it may start for now: the next batch need not wait for this one's model.
            self._permit.all_started()
            self._kit.ring()

    def _queue_now(self, shard: Shard, rows: list[Row]) -> None:
        if shard.grant.row_by_row:
            self._row_by_row.add(shard, rows)
        else:
            self._rows.put([Unit(shard, row) for row in rows])
        if not shard.is_open:
            self._forget(shard)

    def _claim_on(self) -> None:
        """Claim whenever half of what is wanted in hand is started, until the answer is no."""
        while self._claims_on:
            # A young rate grows: who waited half a second with the first one would run dry.
            look = YOUNG_LOOK_SECONDS if self._rate.is_young else LOOK_SECONDS
            self._rows.wait_low(self._wanted() // 2, look)
            wanted = self._wanted()
            self._make_way()
            waiting = self._rows.ready + len(self._parked)
            if (waiting > wanted // 2 and not self._rows.is_shut) or not self._claims_on:
                self._parked.wait(LOOK_SECONDS)
                continue
            full = self._kit.spool.error is not None or len(self._rows) > wanted + MAX_WAITING
            if full or self._rows.is_shut or self._kit.runtimes.all_broken:
                if not self._settler.shards():
                    return  # all was given back, or stopped
                self._rows.pause(LOOK_SECONDS)
                continue
            try:
                claimed = claim(self._kit, self.batch.id, started=True, want_rows=wanted - waiting)
            except TryLater as error:
                if not self._settler.shards():
                    return
                self._rows.pause(pause(error, LONGEST_PAUSE_SECONDS))
                continue
            except Dismissed as error:
                self._kit.on_dismissed(error)
                return
            except Refused as error:
                log.warning("claim.refused", why=str(error), request_id=error.request_id)
                return
            if claimed is None:
                return
            self._take(claimed)

    def _wanted(self) -> int:
        """Say how many rows are to be in hand: two seconds' worth, and one for each permit at least."""
        return max(self._kit.permits.limit, math.ceil(AHEAD_SECONDS * self._rate.per_second()))

    def _wait_until_started(self) -> None:
        last = math.ceil(LAST_SECONDS * self._rate.per_second())
        while len(self._rows) or len(self._parked):
            self._make_way()
            if last and len(self._rows) <= last:
                # What is finished goes home while these run, or the last ones would wait for it to be on its way.
                last = 0
                self._settler.wake()
            self._rows.wait_low(last, LOOK_SECONDS)
            self._parked.wait(LOOK_SECONDS)

    def _make_way(self) -> None:
        """Let another batch begin while all rows of this one wait for a broken runtime, and another one is healthy."""
        if len(self._rows) and not self._rows.ready and not self._kit.runtimes.all_broken and self._permit.holds_slot:
            self._permit.all_started()
            self._kit.ring()

    def _on_shard(self, shard: Shard) -> None:
        """A shard is settled, or left: its rows are nobody's any more, and there may be something to bring home."""
        if not shard.is_open:
            self._forget(shard)
            if not self._settler.is_turning:  # it ended the shard itself, and hands in by the clock
                self._settler.wake()
        elif shard.grant.row_by_row:
            self._settler.wake()
        elif not self._claims_on and all(other.is_settled for other in self._settler.shards()):
            self._settler.wake()  # the last rows of the batch here: do not wait for the next segment

    def _forget(self, shard: Shard) -> None:
        self._parked.forget(shard)
        self._row_by_row.forget(shard)
        self._rows.discard(lambda unit: unit.shard is shard)
