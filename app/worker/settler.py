"""The loop that brings a share's finished rows home and ends its leases, one call at a time (PROTOCOL 5).

Each turn: hand in what is finished (`app.worker.outbox`), report what failed, release what leaves.
"""

import threading
from collections.abc import Collection

import structlog

from app.client.errors import Dismissed, Refused, TryLater
from app.schemas.claims import FailureReport, ReleaseRequest
from app.schemas.segments import EndVerdict, HandInAnswer, PartVerdict
from app.worker.backlog import Backlog
from app.worker.canary import Canary
from app.worker.handin import HandIn
from app.worker.kit import Kit
from app.worker.live_counts import LiveCounts
from app.worker.loop import Loop
from app.worker.outbox import TRY_SECONDS, Outbox
from app.worker.rate import RateMeter
from app.worker.shard import Failure, Fate, Shard
from app.worker.spool import Spooled, SpoolKind

_HOME = frozenset({PartVerdict.STORED, PartVerdict.DUPLICATE})
log = structlog.get_logger("gpuyard.worker")


class Settler(Loop):
    """Ends by itself once `close` was called and every shard has ended."""

    name = "settler"

    def __init__(self, kit: Kit, batch_id: str, backlog: Backlog, rate: RateMeter, canary: Canary) -> None:
        super().__init__()
        self.context = {"batch_id": batch_id}
        self._kit = kit
        self._canary = canary
        canary.on_word = self.wake
        self._lock = threading.Lock()
        self._shards: dict[int, Shard] = {}
        self._closing = False
        self._live_counts = LiveCounts(kit, batch_id, rate)
        self._outbox = Outbox(kit, batch_id, backlog, canary, shards=self.shards, settle=self._settle, drop=self._drop)
        self._reports: dict[int, Spooled | None] = {}
        self.period = kit.segment_seconds

    def add(self, shard: Shard) -> None:
        """Take a shard in."""
        with self._lock:
            self._shards[shard.lease_id] = shard

    def shards(self) -> list[Shard]:
        """The shards that have not ended."""
        with self._lock:
            return list(self._shards.values())

    def close(self) -> None:
        """No shard will come any more."""
        self._closing = True
        self.wake()

    def give_up(self) -> None:
        """Try what is left once; what nobody answers stays in the spool."""
        self._outbox.give_up()
        self._closing = True
        self.wake()

    def turn(self) -> float:
        """Bring home what is there."""
        self._forget_gone()
        self._outbox.bring_home()
        self._report_failures()
        self._release()
        self._tell_live_counts()
        self._forget_gone()
        left = self.shards()
        if self._closing and (not left or self._outbox.gave_up):
            for shard in left:
                self._drop([shard.lease_id], "the worker leaves")
            self.stop()
            if not self._outbox.gives_up:
                self._tell_live_counts(at_end=True)
        more = any(not shard.is_empty and shard.is_settled for shard in left)
        # Else there would be one hand-in after the other: while one is under way, another shard often ends.
        return 0.0 if more and (self._closing or self._outbox.left_over) else self.period

    # --- what comes of a hand-in

    def _settle(self, built: HandIn, answer: HandInAnswer, shards: dict[int, Shard]) -> None:
        for part in built.counted:
            if answer.parts.get(part.lease_id) in _HOME:
                self._kit.counters.stored(part)
        for lease_id in built.parts:
            verdict = answer.parts.get(lease_id, PartVerdict.STALE)
            if verdict not in _HOME:
                log.warning("hand_in.lost", lease_id=lease_id, verdict=verdict)
                self._drop([lease_id], f"its rows were answered {verdict}")
            elif lease_id in shards:
                shards[lease_id].stored()
        for lease_id in built.ends:
            verdict_of_end = answer.ends.get(lease_id, EndVerdict.STALE)
            if verdict_of_end is EndVerdict.INCOMPLETE and lease_id in shards:
                shards[lease_id].is_spooled = False
                if self._outbox.has_doubts(lease_id):
                    continue  # it ends when those rows have come home, or have failed it
                log.error("shard.incomplete", lease_id=lease_id)
                shards[lease_id].reopen()
                shards[lease_id].leave("the control plane misses rows of it")
            else:
                self._drop([lease_id], f"its end was answered {verdict_of_end}")
        self._kit.held.stop(answer.stop)
        if built.word is not None:
            self._canary.told(built.word, goes_on=answer.goes_on)
        self.period = answer.next_segment_seconds or self._kit.segment_seconds
        self._ring(answer.work)

    def _forget(self, item: Spooled | None) -> None:
        if item is not None:
            self._kit.spool.remove(item)

    def _dismissed(self, error: Dismissed) -> None:
        self._outbox.give_up()
        self._kit.on_dismissed(error)

    def _ring(self, work: bool) -> None:
        if work:
            self._kit.ring()

    # --- other ends

    def _report_failures(self) -> None:
        for shard in self.shards():
            if shard.failure is not None and self._is_ready_to_leave(shard):
                self._report(shard, shard.failure)

    def _is_ready_to_leave(self, shard: Shard) -> bool:
        is_through = shard.fate is Fate.LEAVING and shard.is_settled and shard.is_empty
        return is_through and not self._outbox.has_doubts(shard.lease_id)

    def _report(self, shard: Shard, failure: Failure) -> None:
        report = FailureReport(
            worker_id=self._kit.worker_id,
            lease_id=shard.lease_id,
            request_id=shard.end_request,
            code=failure.code,
            error=failure.message,
        )
        if shard.lease_id not in self._reports:
            shard.is_spooled = True
            self._reports[shard.lease_id] = self._kit.spool.keep(SpoolKind.FAILURE, report.model_dump_json().encode())
        item = self._reports[shard.lease_id]
        try:
            answer = self._outbox.ask(lambda: self._kit.plane.report_failure(report, deadline_seconds=TRY_SECONDS))
        except TryLater:
            if self._outbox.gives_up:
                if item is not None:
                    self._kit.spool.orphan(item)
                self._reports[shard.lease_id] = None  # another turn may try again, and it is no longer ours
        except Dismissed as error:
            self._dismissed(error)
        except Refused as error:
            self._forget(item)
            self._drop([shard.lease_id], f"its failure was refused: {error}")
        else:
            self._forget(item)
            self._drop([shard.lease_id], "its failure is reported")
            self._ring(answer.work)

    def _release(self) -> None:
        """Release what leaves, what never began first (DESIGN 7 "Drain"); not what has its end in the spool."""
        leaving = [s for s in self.shards() if s.failure is None and not s.is_spooled and self._is_ready_to_leave(s)]
        for started in (False, True):
            leases = [shard.lease_id for shard in leaving if shard.is_started is started]
            reasons = {shard.reason for shard in leaving if shard.is_started is started}
            if leases:
                self._release_these(leases, "; ".join(sorted(reasons))[:200])

    def _release_these(self, leases: list[int], reason: str) -> None:
        request = ReleaseRequest(worker_id=self._kit.worker_id, leases=leases, reason=reason)
        try:
            answer = self._outbox.ask(lambda: self._kit.plane.release(request, deadline_seconds=TRY_SECONDS))
        except TryLater:
            return  # the next turn tries again; if none comes, the leases end by their own clock
        except Dismissed as error:
            self._dismissed(error)
        except Refused as error:
            self._drop(leases, f"its release was refused: {error}")
        else:
            self._drop(leases, "released")
            self._ring(answer.work)

    def _drop(self, leases: Collection[int], reason: str) -> None:
        for shard in self.shards():
            if shard.lease_id in leases:
                self._kit.held.remove(shard.lease_id)
                shard.drop(reason)
                log.debug("shard.ended", lease_id=shard.lease_id, job_id=shard.grant.job_id, why=reason)

    def _forget_gone(self) -> None:
        with self._lock:
            self._shards = {key: shard for key, shard in self._shards.items() if shard.fate is not Fate.GONE}

    def _tell_live_counts(self, *, at_end: bool = False) -> None:
        try:
            self._live_counts.tell(self.shards(), at_end=at_end)
        except Dismissed as error:
            self._dismissed(error)
