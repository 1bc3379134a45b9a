"""The hand-ins of one batch on their way home: spooled, then sent again and again until something comes of them.

| what comes | what becomes of it |
|---|---|
| a verdict | it is settled |
| no answer, 429, 502 to 504 | the same bytes go out again, however long it takes |
| no answer yet | what finishes meanwhile is spooled |
| 500 again and again | it is cut up; a row alone waits until others are stored, and then goes home as a failed one |
| refused as a whole | it is cut up; a shard with a row that is not taken has failed |
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import structlog

from app.client.errors import BUG, Dismissed, LeaseLost, Refused, TryLater
from app.client.patience import pause
from app.domain.rows import RowErrorCode
from app.schemas.segments import HandInAnswer
from app.worker import handin
from app.worker.backlog import Backlog
from app.worker.canary import Canary
from app.worker.handin import HandIn
from app.worker.kit import Kit
from app.worker.loop import answered
from app.worker.shard import Fate, Shard
from app.worker.smaller import cut_up, without_answer
from app.worker.spool import Spooled, SpoolKind

TRY_SECONDS = 5.0
MOST_BUGS = 3
"""So many tries, of `TRY_SECONDS` and a few calls each, may be answered 500 before a hand-in is cut up."""
TOO_LARGE = 413
LEAST_BYTES = 64 * 1024
"""No proxy takes less; smaller hand-ins would only be more of them."""
AnswerT = TypeVar("AnswerT")
log = structlog.get_logger("gpuyard.worker")


@dataclass(slots=True, eq=False)
class _Sent:
    """A hand-in with its file. `bugs`: how often running it was answered 500.

    `since`: when that began, with it or with the one that it is a piece of.
    """

    hand_in: HandIn
    file: Spooled | None
    bugs: int = 0
    since: float = math.inf

    def failed(self, error: TryLater) -> None:
        """Note what a try came to."""
        if error.status == BUG:
            self.bugs, self.since = self.bugs + 1, min(self.since, time.monotonic())
        else:
            self.bugs, self.since = 0, math.inf


class Outbox:
    """Of the settler's thread; only `give_up` is called from others.

    `settle` takes a hand-in with its answer and the shards that were there when it was sent, by lease; `drop` forgets
    leases, with the reason.
    """

    def __init__(
        self,
        kit: Kit,
        batch_id: str,
        backlog: Backlog,
        canary: Canary,
        *,
        shards: Callable[[], list[Shard]],
        settle: Callable[[HandIn, HandInAnswer, dict[int, Shard]], None],
        drop: Callable[[Collection[int], str], None],
    ) -> None:
        self._kit = kit
        self._batch_id = batch_id
        self._backlog = backlog
        self._canary = canary
        self._shards = shards
        self._settle = settle
        self._drop = drop
        self._giving_up = threading.Event()
        self.gave_up = False
        """Whether the turn under way began after `give_up`: it is the last one."""
        self.left_over = False
        """Whether more was finished than the last hand-in took."""
        self._max_bytes = handin.MAX_BYTES
        self._waiting: deque[_Sent] = deque()
        self._doubtful: deque[_Sent] = deque()
        self._took_seconds = 0.0

    @property
    def gives_up(self) -> bool:
        """Whether what nobody answers is left to the spool."""
        return self._giving_up.is_set()

    def give_up(self) -> None:
        """Try what is left once."""
        self._giving_up.set()

    def has_doubts(self, lease_id: int) -> bool:
        """Tell whether rows of a lease wait, because the API breaks on them or on everything: it cannot end yet."""
        return any(lease_id in sent.hand_in.leases for sent in self._doubtful)

    def ask(self, call: Callable[[], AnswerT]) -> AnswerT:
        """Make a call, and spool what finishes while it is not answered in time.

        In time is within a segment, or as soon as the last answer came: a service that is slow gets no more hand-ins
        for that. A call may hang for half a minute; neither a `kill -9` nor a self-stop is to cost rows meanwhile.
        """
        began = time.monotonic()
        every = max(self._kit.segment_seconds, self._took_seconds)
        answer = answered(call, every=every, meanwhile=self._gather_one)
        self._took_seconds = time.monotonic() - began
        return answer

    def bring_home(self) -> None:
        """Hand in what is finished."""
        self._gather()
        while self._waiting:
            self._deliver(self._waiting[0])
            self._waiting.popleft()
        self._look_again()

    def _gather(self) -> None:
        """Spool what is finished. One hand-in at a time; all of it when it is the last chance."""
        self.gave_up = self.gives_up
        while self.gave_up or not self._waiting:
            if not self._gather_one():
                return

    def _gather_one(self) -> bool:
        """Build one hand-in and spool it. Of more than it takes, the rest goes at once."""
        word = None if self.gave_up or self._waiting else self._canary.word
        built = handin.build(
            self._kit.worker_id,
            self._batch_id,
            self._shards(),
            word,
            max_bytes=self._max_bytes,
            may_end=lambda shard: not self.has_doubts(shard.lease_id),
        )
        self.left_over = built is not None and built.line_bytes >= self._max_bytes // 2
        if built is not None:
            # It waits here until it is settled: whatever goes wrong on the way, the same bytes go out again.
            self._waiting.append(_Sent(built, self._spooled(built) if built.leases else None))
        return built is not None

    def _spooled(self, built: HandIn) -> Spooled | None:
        return self._kit.spool.keep(SpoolKind.HAND_IN, built.body)

    def _deliver(self, sent: _Sent) -> None:
        """Send until something comes of it.

        While nobody answers, what finishes meanwhile is spooled too: an outage may be long, and neither a `kill -9`
        nor a lease that is given up for it may cost its rows.
        """
        while (error := self._try(sent, TRY_SECONDS)) is not None:
            if sent.bugs >= MOST_BUGS:
                self._broke(sent, error)
                break
            self._gather_one()
            self._giving_up.wait(pause(error, TRY_SECONDS))
        self._backlog.subtract(sent.hand_in.line_bytes)  # last: what fails before is done again, and counts once

    def _try(self, sent: _Sent, seconds: float) -> TryLater | None:
        """Send for so long. None: something came of it, or it is left to the spool."""
        built = sent.hand_in
        shards = {shard.lease_id: shard for shard in self._shards()}
        try:
            answer = self.ask(
                lambda: self._kit.plane.hand_in(built.body, ends=bool(built.ends), deadline_seconds=seconds)
            )
        except TryLater as error:
            ours = {shard.lease_id for shard in self._shards() if shard.fate is not Fate.GONE}
            if not self.gives_up and ours & built.leases:
                sent.failed(error)
                return error
            if sent.file is not None:
                self._kit.spool.orphan(sent.file)
        except Dismissed as error:
            self._giving_up.set()
            self._kit.on_dismissed(error)
        except Refused as error:
            log.error(  # noqa: TRY400 - the reason says it all
                "hand_in.refused",
                leases=sorted(built.leases),
                why=str(error),
                code=error.code,
                request_id=error.request_id,
            )
            if isinstance(error, LeaseLost):
                self._drop(built.leases, f"the hand-in was refused: {error}")
                self._forget(sent)
            else:
                if error.status == TOO_LARGE:
                    self._max_bytes = max(LEAST_BYTES, min(self._max_bytes, len(built.body) // 2))
                if not self._is_cut_up(sent):
                    self._fail(sent, str(error))
        else:
            self._forget(sent)
            self._settle(built, answer, shards)
        return None

    def _forget(self, sent: _Sent) -> None:
        if sent.file is not None:
            self._kit.spool.remove(sent.file)

    # --- what is not taken

    def _is_cut_up(self, sent: _Sent) -> bool:
        """Nobody takes these bytes: send them in smaller pieces, until it is plain what is not taken.

        False when there are none, or when its shards have failed: what else is on its way of those is sent as it is.
        """
        built = sent.hand_in
        shards = {shard.lease_id: shard for shard in self._shards() if shard.lease_id in built.leases}
        if all(shard.failure is not None for shard in shards.values()):
            return False
        pieces = cut_up(built, lambda lease_id: shards[lease_id].next_seq())
        for place, piece in enumerate(pieces, 1):  # behind this one, and before what was finished later
            self._waiting.insert(place, _Sent(piece, self._spooled(piece), since=sent.since))
        if pieces:
            self._forget(sent)
        return bool(pieces)

    def _fail(self, sent: _Sent, why: str) -> None:
        """A shard with a row that nobody takes has failed. Merely given up, it would be granted again, for ever."""
        for shard in self._shards():
            if shard.lease_id in sent.hand_in.leases:
                shard.is_spooled = False
                shard.reopen()
                shard.fail(RowErrorCode.INTERNAL_ERROR, f"what was finished of it was refused: {why}")
        self._forget(sent)

    def _broke(self, sent: _Sent, error: TryLater) -> None:
        """The API meets a bug over it, or over everything: others go first, and will tell."""
        log.error("hand_in.broken", leases=sorted(sent.hand_in.leases), why=str(error), request_id=error.request_id)
        if not self._is_cut_up(sent):
            self._doubtful.append(sent)

    def _look_again(self) -> None:
        """Send what the API breaks on once more: one a turn, as long as it breaks on all, and another one each time."""
        while self._doubtful:
            sent = self._doubtful[0]
            error = self._try(sent, 0.0)
            if error is not None and not self._is_settled_without(sent, error):
                self._doubtful.rotate(-1)
                return
            self._doubtful.popleft()

    def _is_settled_without(self, sent: _Sent, error: TryLater) -> bool:
        """Hand the row in as a failed one; its shard has failed if the API breaks on that, too.

        False: nothing shows yet that it breaks on this one alone, for no other was stored since; or nobody is there.
        """
        if self._kit.counters.stored_at <= sent.since:
            return False
        instead = without_answer(sent.hand_in, f"{error} (request {error.request_id})")
        again = error if instead is None else self._try(_Sent(instead, sent.file), 0.0)
        if again is not None and again.status != BUG:
            return False
        log.error("row.not_stored", leases=sorted(sent.hand_in.leases), why=str(error), request_id=error.request_id)
        if again is not None:
            self._fail(sent, str(error))
        return True
