"""One worker's share of one batch: claim shards, run their rows, claim on before they run out (DESIGN 1, PROTOCOL 6).

The thread that calls `run` is the conductor: it claims and loads. Lanes run rows, the settler hands in and ends
leases. Everybody who wants the share to end says so to its shards or its queue; the conductor goes home last.
"""

import math
import threading

import structlog

from app.client.errors import Dismissed, Refused, TryLater
from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.schemas.claims import BatchBrief
from app.worker import loader
from app.worker.backlog import Backlog
from app.worker.claims import Claimed, claim
from app.worker.gate import Permit
from app.worker.kit import Kit
from app.worker.prompt_pool import PromptPool
from app.worker.rate import RateMeter
from app.worker.row_queue import RowQueue
from app.worker.runtimes import RuntimeGone
from app.worker.settler import Settler
from app.worker.shard import Shard
from executors.cancellation import RowCancelled

AHEAD_SECONDS = 2.0
LOOK_SECONDS = 0.5
Unit = tuple[Shard, Row]
log = structlog.get_logger("gpuyard.worker")


class Share:
    """Made for the first shards of a batch; `run` returns when every lease it ever held has ended."""

    def __init__(self, kit: Kit, permit: Permit, batch: BatchBrief) -> None:
        self.batch = batch
        self._kit = kit
        self._permit = permit
        self._rows: RowQueue[Unit] = RowQueue()
        self._backlog = Backlog(self._rows)
        self._rate = RateMeter(kit.clock)
        self._settler = Settler(kit, batch.id, self._backlog, self._rate)
        self._claims_on = True
        self._traced = False
        self._lock = threading.Lock()
        self._pool: PromptPool[Unit] = PromptPool(
            (batch.created_at, batch.id), kit.permits, self._rows, self._run_row, kit.starved
        )

    def run(self, claimed: Claimed) -> None:
        """Work until the batch has nothing more for this worker, or the worker nothing more for it."""
        structlog.contextvars.bind_contextvars(batch_id=self.batch.id)
        self._settler.start()
        self._pool.fit()
        try:
            self._take(claimed)
            self._claim_on()
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
        """The worker's permits changed."""
        self._pool.fit()

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

    def hold(self, reason: str) -> None:
        """Start no row until `let_go` with the same reason."""
        self._rows.hold(reason)

    def let_go(self, reason: str) -> None:
        """Go on."""
        self._rows.let_go(reason)

    def pace(self, segment_seconds: float) -> None:
        """Hand in this often from now on."""
        self._settler.period = segment_seconds

    @property
    def in_flight(self) -> int:
        """Shards with rows that run, or whose rows are not handed in."""
        return len(self._settler.shards())

    # --- the conductor

    def _take(self, claimed: Claimed) -> None:
        shards = [Shard(grant, self._backlog, self._on_shard) for grant in claimed.grants]
        with self._lock:
            for shard in shards:
                self._settler.add(shard)
                self._kit.held.add(shard, claimed.sent_at)
            late = not self._claims_on
        for shard in shards:
            if late:
                shard.leave("the worker takes no more rows")
                continue
            try:
                loader.load(self._kit, self.batch, shard, self._queue)
            except Dismissed as error:
                self._kit.on_dismissed(error)
                return
            except Exception as error:
                log.exception("shard.not_loaded", lease_id=shard.lease_id)
                shard.fail(RowErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _queue(self, shard: Shard, rows: list[Row]) -> None:
        self._rows.put((shard, row) for row in rows)
        if not shard.is_open:
            self._forget(shard)

    def _claim_on(self) -> None:
        """Claim whenever half of what is wanted in hand is started, until the answer is no."""
        while self._claims_on:
            wanted = max(self._kit.permits.limit, math.ceil(AHEAD_SECONDS * self._rate.per_second()))
            self._rows.wait_low(wanted // 2, LOOK_SECONDS)
            waiting = len(self._rows)
            if waiting > wanted // 2 or not self._claims_on:
                continue
            try:
                claimed = claim(self._kit, self.batch.id, started=True, want_rows=wanted - waiting)
            except TryLater:
                if not self._settler.shards():
                    return
                continue
            except Dismissed as error:
                self._kit.on_dismissed(error)
                return
            except Refused as error:
                log.warning("claim.refused", why=str(error))
                return
            if claimed is None:
                return
            self._take(claimed)

    def _wait_until_started(self) -> None:
        while len(self._rows):
            self._rows.wait_low(0, LOOK_SECONDS)

    def _on_shard(self, shard: Shard) -> None:
        """A shard is settled, or left: its rows are nobody's any more, and there may be something to bring home."""
        if not shard.is_open:
            self._forget(shard)
            self._settler.wake()
        elif not self._claims_on and all(other.is_settled for other in self._settler.shards()):
            self._settler.wake()  # the last rows of the batch here: do not wait for the next segment

    def _forget(self, shard: Shard) -> None:
        self._rows.discard(lambda unit: unit[0] is shard)

    # --- a lane, for each row

    def _run_row(self, unit: Unit) -> None:
        shard, row = unit
        if not shard.begin():
            return
        try:
            reply = self._kit.runtimes.execute(row, timeout=self._kit.row_timeout_seconds, cancelled=shard.token)
            done = loader.finished(self.batch.id, row, reply)
        except RowCancelled:
            shard.cut()
            return
        except RuntimeGone as error:
            shard.leave(str(error))
            shard.cut()
            return
        except BaseException as error:  # B-15: whatever it is, it costs this row and nothing else
            text = f"{type(error).__name__}: {error}"
            # The trace once a batch: a defect that meets a million rows must not fill the disk.
            log.error(  # noqa: TRY400 - the reason says it all
                "row.failed", lease_id=shard.lease_id, row=row.number, why=text[:500], exc_info=not self._traced
            )
            self._traced = True
            done = loader.finished(self.batch.id, row, Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, text[:2000])))
        shard.finish(done)
        self._rate.count()
        self._kit.row_done()
