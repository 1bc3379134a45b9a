"""The loop that brings a share's finished rows home and ends its leases, one call at a time (PROTOCOL 5).

Each turn: hand in what is finished, report what failed, release what leaves. A hand-in is written to the spool, then
sent again and again, byte for byte, until a verdict comes or no lease of it is ours any more.
"""

import threading
from collections import deque
from collections.abc import Collection

import structlog

from app.client.errors import Dismissed, LeaseLost, Refused, TryLater
from app.client.patience import pause
from app.domain.rows import RowErrorCode
from app.schemas.claims import FailureReport, ReleaseRequest
from app.schemas.segments import EndVerdict, HandInAnswer, PartVerdict
from app.worker import handin
from app.worker.backlog import Backlog
from app.worker.canary import Canary
from app.worker.kit import Kit
from app.worker.live_counts import LiveCounts
from app.worker.loop import Loop
from app.worker.rate import RateMeter
from app.worker.shard import Failure, Fate, Shard
from app.worker.smaller import cut_up
from app.worker.spool import Spooled, SpoolKind

TRY_SECONDS = 5.0
TOO_LARGE = 413
LEAST_BYTES = 64 * 1024
"""No proxy takes less; smaller hand-ins would only be more of them."""
_HOME = frozenset({PartVerdict.STORED, PartVerdict.DUPLICATE})
log = structlog.get_logger("gpuyard.worker")


class Settler(Loop):
    """Ends by itself once `close` was called and every shard has ended."""

    name = "settler"

    def __init__(self, kit: Kit, batch_id: str, backlog: Backlog, rate: RateMeter, canary: Canary) -> None:
        super().__init__()
        self.context = {"batch_id": batch_id}
        self._kit = kit
        self._batch_id = batch_id
        self._backlog = backlog
        self._canary = canary
        canary.on_word = self.wake
        self._lock = threading.Lock()
        self._shards: dict[int, Shard] = {}
        self._closing = False
        self._giving_up = threading.Event()
        self._gave_up = False
        self._live_counts = LiveCounts(kit, batch_id, rate)
        self._left_over = False
        self._max_bytes = handin.MAX_BYTES
        self._outbox: deque[tuple[handin.HandIn, Spooled | None]] = deque()
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
        self._giving_up.set()
        self._closing = True
        self.wake()

    def turn(self) -> float:
        """Bring home what is there."""
        self._forget_gone()
        self._gather()
        while self._outbox:
            self._deliver(*self._outbox[0])
            self._outbox.popleft()
        self._report_failures()
        self._release()
        self._tell_live_counts()
        self._forget_gone()
        left = self.shards()
        if self._closing and (not left or self._gave_up):
            for shard in left:
                self._drop([shard.lease_id], "the worker leaves")
            self.stop()
        more = any(not shard.is_empty and shard.is_settled for shard in left)
        # Else there would be one hand-in after the other: while one is under way, another shard often ends.
        return 0.0 if more and (self._closing or self._left_over) else self.period

    # --- hand-ins

    def _gather(self) -> None:
        """Spool what is finished. One hand-in at a time; all of it when it is the last chance."""
        self._gave_up = self._giving_up.is_set()
        while self._gave_up or not self._outbox:
            if not self._gather_one():
                return

    def _gather_one(self) -> bool:
        """Build one hand-in and spool it. Of more than it takes, the rest goes at once."""
        word = None if self._gave_up or self._outbox else self._canary.word
        built = handin.build(self._kit.worker_id, self._batch_id, self.shards(), word, max_bytes=self._max_bytes)
        self._left_over = built is not None and built.line_bytes >= self._max_bytes // 2
        if built is not None:
            # In the outbox until it is settled: whatever goes wrong on the way, the same bytes go out again.
            item = self._spooled(SpoolKind.HAND_IN, built.body) if built.leases else None
            self._outbox.append((built, item))
        return built is not None

    def _deliver(self, built: handin.HandIn, item: Spooled | None) -> None:
        shards = {shard.lease_id: shard for shard in self.shards()}
        answer = self._sent(built, item)
        if answer is not None:
            self._forget(item)
            self._settle(built, answer, shards)
        self._backlog.subtract(built.line_bytes)  # last: what fails before is done again, and counts once

    def _spooled(self, kind: SpoolKind, body: bytes) -> Spooled | None:
        """Write to the spool; None when the disk is full: what is sent at once needs no spool."""
        try:
            return self._kit.spool.write(kind, body)
        except OSError:
            return None

    def _forget(self, item: Spooled | None) -> None:
        if item is not None:
            self._kit.spool.remove(item)

    def _orphan(self, item: Spooled | None) -> None:
        if item is not None:
            self._kit.spool.orphan(item)

    def _sent(self, built: handin.HandIn, item: Spooled | None) -> HandInAnswer | None:
        """Send until there is an answer. None: it is left to the spool, or refused as a whole.

        While nobody answers, what finishes meanwhile is spooled too: an outage may be long, and neither a `kill -9`
        nor a lease that is given up for it may cost its rows.
        """
        while True:
            try:
                return self._kit.plane.hand_in(built.body, ends=bool(built.ends), deadline_seconds=TRY_SECONDS)
            except TryLater as error:
                ours = {shard.lease_id for shard in self.shards() if shard.fate is not Fate.GONE}
                if self._giving_up.is_set() or not ours & built.leases:
                    self._orphan(item)
                    return None
                self._gather_one()
                self._giving_up.wait(pause(error, TRY_SECONDS))
            except Dismissed as error:
                self._dismissed(error)
                return None
            except Refused as error:
                leases = sorted(built.leases)
                log.error(  # noqa: TRY400 - the reason says it all
                    "hand_in.refused", leases=leases, why=str(error), code=error.code, request_id=error.request_id
                )
                if isinstance(error, LeaseLost):
                    self._drop(built.leases, f"the hand-in was refused: {error}")
                else:
                    self._refused(built, error)
                self._forget(item)
                return None

    def _refused(self, built: handin.HandIn, error: Refused) -> None:
        """Nobody will ever take these bytes: send them in smaller pieces, until it is plain what is not taken.

        A shard with such a row has failed. Merely given up, it would be granted again and run for ever. What else is
        on its way of it is still sent, and not cut up any more.
        """
        if error.status == TOO_LARGE:
            self._max_bytes = max(LEAST_BYTES, min(self._max_bytes, len(built.body) // 2))
        shards = {shard.lease_id: shard for shard in self.shards() if shard.lease_id in built.leases}
        if any(shard.failure is None for shard in shards.values()):
            pieces = cut_up(built, lambda lease_id: shards[lease_id].next_seq())
            for place, piece in enumerate(pieces, 1):  # behind this one, and before what was finished later
                self._outbox.insert(place, (piece, self._spooled(SpoolKind.HAND_IN, piece.body)))
            if pieces:
                return
        for shard in shards.values():
            shard.is_spooled = False
            shard.reopen()
            shard.fail(RowErrorCode.INTERNAL_ERROR, f"what was finished of it was refused: {error}")

    def _dismissed(self, error: Dismissed) -> None:
        self._giving_up.set()
        self._kit.on_dismissed(error)

    def _settle(self, built: handin.HandIn, answer: HandInAnswer, shards: dict[int, Shard]) -> None:
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
                log.error("shard.incomplete", lease_id=lease_id)
                shards[lease_id].is_spooled = False
                shards[lease_id].reopen()
                shards[lease_id].leave("the control plane misses rows of it")
            else:
                self._drop([lease_id], f"its end was answered {verdict_of_end}")
        self._kit.held.stop(answer.stop)
        if built.word is not None:
            self._canary.told(built.word, goes_on=answer.goes_on)
        self.period = answer.next_segment_seconds or self._kit.segment_seconds
        self._ring(answer.work)

    def _ring(self, work: bool) -> None:
        if work:
            self._kit.ring()

    # --- other ends

    def _report_failures(self) -> None:
        for shard in self.shards():
            if shard.failure is not None and self._is_ready_to_leave(shard):
                self._report(shard, shard.failure)

    def _is_ready_to_leave(self, shard: Shard) -> bool:
        return shard.fate is Fate.LEAVING and shard.is_settled and shard.is_empty

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
            self._reports[shard.lease_id] = self._spooled(SpoolKind.FAILURE, report.model_dump_json().encode())
        item = self._reports[shard.lease_id]
        try:
            answer = self._kit.plane.report_failure(report, deadline_seconds=TRY_SECONDS)
        except TryLater:
            if self._giving_up.is_set():
                self._orphan(item)
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
        """Release what leaves, what never began first (DESIGN 7 "Drain")."""
        leaving = [s for s in self.shards() if s.failure is None and self._is_ready_to_leave(s)]
        for started in (False, True):
            leases = [shard.lease_id for shard in leaving if shard.is_started is started]
            reasons = {shard.reason for shard in leaving if shard.is_started is started}
            if leases:
                self._release_these(leases, "; ".join(sorted(reasons))[:200])

    def _release_these(self, leases: list[int], reason: str) -> None:
        request = ReleaseRequest(worker_id=self._kit.worker_id, leases=leases, reason=reason)
        try:
            answer = self._kit.plane.release(request, deadline_seconds=TRY_SECONDS)
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

    def _tell_live_counts(self) -> None:
        try:
            self._live_counts.tell(self.shards())
        except Dismissed as error:
            self._dismissed(error)
