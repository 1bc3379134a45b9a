"""What a lane does with each row: begin it, run it, and keep its reply or have it run again.

Where the runtime's executor can, a row is only begun. The executor's own thread hears of its end, settles the row and
begins the next one, so that no thread waits for an answer (PERFORMANCE 2).
"""

import threading
from collections.abc import Callable
from functools import partial

import structlog

from app.domain.rows import Reply, RowError, RowErrorCode
from app.worker import chunks, loader
from app.worker.canary import Canary
from app.worker.kit import Kit
from app.worker.rate import RateMeter
from app.worker.row_queue import RowQueue
from app.worker.row_starts import RowStarts
from app.worker.runtimes import RuntimeGone
from app.worker.shard import Shard
from app.worker.units import Run, Unit
from app.worker.verdicts import Verdict
from executors.base import Ending
from executors.cancellation import RowCancelled

Rest = Callable[[], Reply]
"""What is left of a row that was started, for a thread that may wait."""

log = structlog.get_logger("gpuyard.worker")


class Lane:
    """One a batch, for all of its lanes. `forget` throws away the queued rows of a shard that left."""

    def __init__(
        self,
        kit: Kit,
        batch_id: str,
        rows: RowQueue,
        rate: RateMeter,
        canary: Canary,
        *,
        forget: Callable[[Shard], None],
    ) -> None:
        self._kit = kit
        self._starts = RowStarts(kit)
        self._batch_id = batch_id
        self._rows = rows
        self._rate = rate
        self._canary = canary
        self._forget = forget
        self._traced = False
        self._on = threading.local()

    def start(self, run: Run, ended: Callable[[Run, Rest | None], None]) -> bool:
        """Begin a row that nobody needs to wait for. False: `run` it.

        `ended` is called in a thread that must not wait, when the row is settled, or with the rest that `run` needs.
        """
        if run.unit.sharing or not self._begin(run) or run.unit.shard.owes_word:
            return False
        try:
            return self._kit.runtimes.begin(
                run,
                timeout=self._kit.row_timeout_seconds,
                cancelled=run.unit.shard.token,
                ended=partial(self._ended, run, ended),
            )
        except Exception:  # a third party's executor: it may not even begin rows
            log.exception("runtime.cannot_begin_row", row=run.unit.row.number)
            return False

    def _ended(self, run: Run, ended: Callable[[Run, Rest | None], None], ending: Ending) -> None:
        if isinstance(ending, Reply):
            self._settle(run, run.unit, ending)
            ended(run, None)
        else:
            ended(run, ending)

    def _begin(self, run: Run) -> bool:
        run.has_begun = run.has_begun or run.unit.shard.begin()
        return run.has_begun

    def run(self, run: Run, rest: Rest | None = None) -> None:
        """Run a row, and those that share its request, to whatever end; or do the rest of one that was started."""
        shard = run.unit.shard
        if getattr(self._on, "lease_id", None) != shard.lease_id:
            self._on.lease_id = shard.lease_id
            structlog.contextvars.bind_contextvars(lease_id=shard.lease_id, job_id=shard.grant.job_id)
        if not self._begin(run):
            self._kit.runtimes.ends.given_up(run)
            return
        if rest is None and shard.owes_word and not self._starts.told(shard, run.unit.row):
            self._kit.runtimes.ends.given_up(run)
            shard.cut()
            return
        if rest is None and self._join(run):
            self._run_chunk(run)
            return
        timeout = self._kit.row_timeout_seconds
        try:
            reply = self._kit.runtimes.execute(run, timeout=timeout, cancelled=shard.token, begun=rest)
        except RowCancelled:
            self._kit.runtimes.ends.given_up(run)
            shard.cut()
            return
        except RuntimeGone as error:
            shard.leave(str(error))
            shard.cut()
            return
        except BaseException as error:  # noqa: BLE001 - B-15: whatever it is, it costs this row and nothing else
            self._kit.runtimes.ends.given_up(run)
            self._keep(run, run.unit, self._defect(run.unit, error))
            return
        if run.place is None and reply.error is not None and reply.error.code is RowErrorCode.MODEL_NOT_FOUND:
            # It vanished after the claim. Another worker may have it; after three tries the shard's rows say so.
            shard.fail(reply.error.code, reply.error.message)
            shard.cut()
            return
        self._settle(run, run.unit, reply)

    def _join(self, run: Run) -> bool:
        """Have further rows share the request of one that began. True: there are some."""
        room = chunks.room(run)
        if room:
            taken = self._rows.take_more(run, room, partial(chunks.may_join, run))
            run.more = [unit for unit in taken if unit.shard.begin()]
        return bool(run.more)

    def _run_chunk(self, run: Run) -> None:
        shard, units = run.unit.shard, run.units
        try:
            replies = chunks.execute(run, timeout=self._kit.row_timeout_seconds, cancelled=shard.token)
        except RowCancelled:
            for _ in units:
                shard.cut()
            return
        except BaseException as error:  # noqa: BLE001 - B-15: whatever it is, it costs the rows of this request
            for unit in units:
                self._keep(run, unit, self._defect(unit, error))
            return
        told: set[int] = set()
        for unit, reply in zip(units, replies, strict=True):
            self._settle(run, unit, reply, is_news=id(reply) not in told)
            told.add(id(reply))

    def _settle(self, run: Run, unit: Unit, reply: Reply, *, is_news: bool = True) -> None:
        try:
            verdict = self._kit.runtimes.ends.judge(
                run, unit, reply, timeout=self._kit.row_timeout_seconds, is_news=is_news
            )
        except Exception as error:  # noqa: BLE001 - B-15: a third party's reply may hold what cannot be judged
            self._kit.runtimes.ends.given_up(run)
            self._keep(run, unit, self._defect(unit, error))
            return
        if verdict is Verdict.KEEP:
            self._keep(run, unit, reply)
        else:
            self._again(unit, verdict, reply)

    def _keep(self, run: Run, unit: Unit, reply: Reply) -> None:
        try:
            models = run.place.facts.models if run.place is not None else ()
            done = loader.finished(self._batch_id, unit.row, reply, models)
        except Exception as error:  # noqa: BLE001 - B-15: a third party's executor may give what cannot be written
            reply = self._defect(unit, error)
            done = loader.finished(self._batch_id, unit.row, reply)
        unit.shard.finish(done)
        try:
            self._canary.kept(unit.row.number, reply)
            self._rate.count()
            if run.place is not None:  # what no runtime was asked says nothing of how much they take
                self._kit.row_done(run.began_at)
        except Exception:  # the row is kept, and so are to be those that share its request
            log.exception("row.not_counted", row=unit.row.number)

    def _again(self, unit: Unit, verdict: Verdict, reply: Reply) -> None:
        """Have a row run again that is not at fault, or may not be."""
        shard = unit.shard
        if not shard.put_back():
            return
        self._kit.counters.again(verdict)
        self._rows.again(unit, verdict, not_before=reply.retry_after)
        if not shard.is_open:  # it left meanwhile, and did not see the row
            self._forget(shard)

    def _defect(self, unit: Unit, error: BaseException) -> Reply:
        text = f"{type(error).__name__}: {error}"
        # The trace once a batch: a defect that meets a million rows must not fill the disk.
        log.error(
            "row.failed",
            # Said here, for the thread that hears of a row's end works for many.
            batch_id=self._batch_id,
            lease_id=unit.shard.lease_id,
            job_id=unit.shard.grant.job_id,
            row=unit.row.number,
            why=text[:500],
            exc_info=None if self._traced else error,
        )
        self._traced = True
        return Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, text[:2000]))
