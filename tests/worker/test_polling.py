"""The loop that polls: three signals, no poll without a permit, and R-09's waits. Time and chance are the test's."""

import threading
from dataclasses import dataclass, field

import pytest

from app.client.errors import ControlPlaneError, Refused, Superseded, TryLater
from app.schemas.polls import Poll, PollAnswer, PolledMessage
from app.worker.backoff import Backoff
from app.worker.polling import IDLE_SECONDS, Polling

SECONDS = 5.0


@dataclass
class Line:
    """A control plane at the end of a line: each poll waits for what the test lets it answer."""

    answers: list[PollAnswer | ControlPlaneError] = field(default_factory=list)
    asked: list[Poll] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def ask(self, poll: Poll) -> PollAnswer:
        with self.changed:
            self.asked.append(poll)
            number = len(self.asked)
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: len(self.answers) >= number, SECONDS):
                raise TryLater("the test has ended")
            answer = self.answers[number - 1]
        if isinstance(answer, ControlPlaneError):
            raise answer
        return answer

    def answer(self, *answers: PollAnswer | ControlPlaneError) -> None:
        with self.changed:
            self.answers += answers
            self.changed.notify_all()

    def until_asked(self, times: int) -> Poll:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= times, SECONDS)
            return self.asked[times - 1]


class Bench:
    """A polling loop whose turns the test takes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.free = 1
        self.line = Line()
        self.heard: list[str] = []
        self.dismissed: list[str | None] = []
        self.polling = Polling(
            self.line.ask,
            Backoff(1, 30, lambda: 0.5),
            lambda: self.now,
            describe=self._describe,
            on_message=lambda message: self.heard.append(message.kind),
            on_dismissed=lambda error: self.dismissed.append(error.code),
        )

    def _describe(self, cursor: str | None) -> Poll | None:
        return Poll(worker_id="wrk_1", boot_id="b", cursor=cursor, free=self.free) if self.free else None

    def turn(self) -> float:
        """One turn, after the poll under way, if it was answered, has come home."""
        call = self.polling._call
        if call is not None and len(self.line.answers) >= len(self.line.asked):
            call.join(SECONDS)
        return self.polling.turn()


def heard(cursor: str, *kinds: str) -> PollAnswer:
    return PollAnswer(cursor=cursor, messages=[PolledMessage(kind=kind) for kind in kinds])


@pytest.fixture
def bench() -> Bench:
    found = Bench()
    found.polling.begin()
    return found


def test_one_poll_is_out_at_a_time_and_its_answer_brings_the_next_with_its_cursor(bench: Bench) -> None:
    assert bench.turn() == IDLE_SECONDS
    assert bench.line.until_asked(1).cursor is None
    assert bench.turn() == IDLE_SECONDS
    assert len(bench.line.asked) == 1

    bench.line.answer(heard("c1", "work", "drain", "something new"))
    bench.turn()
    assert bench.heard == ["work", "drain", "something new"]
    assert bench.line.until_asked(2).cursor == "c1"
    bench.line.answer(heard("c2"))


def test_a_poll_whose_answer_was_lost_is_asked_again_with_the_same_cursor(bench: Bench) -> None:
    bench.turn()
    bench.line.answer(heard("c1"), TryLater("no answer"))
    bench.turn()
    bench.line.until_asked(2)
    bench.turn()
    bench.now += 10
    bench.turn()
    assert bench.line.until_asked(3).cursor == "c1"
    bench.line.answer(heard("c2"))


def test_with_no_permit_free_nothing_is_polled_until_one_is_released(bench: Bench) -> None:
    bench.free = 0
    assert bench.turn() == IDLE_SECONDS
    assert bench.line.asked == []
    bench.free = 2
    bench.turn()
    assert bench.line.until_asked(1).free == 2
    bench.line.answer(heard("c1"))


def test_a_share_that_ends_asks_anew_and_leaves_the_poll_under_way_to_itself(bench: Bench) -> None:
    bench.turn()
    bench.line.until_asked(1)
    bench.polling.share_ended()
    bench.turn()
    assert bench.line.until_asked(2).cursor is None
    bench.line.answer(heard("lost", "work"), heard("c2"))
    bench.turn()
    assert bench.heard == []
    assert bench.line.until_asked(3).cursor == "c2"
    bench.line.answer(heard("c3"))


def test_the_waits_after_failures_are_those_of_r_09_and_a_success_begins_anew(bench: Bench) -> None:
    """B + 0.5 * min(b, 5), b doubling from 1 to 30 (FT-17)."""
    waits = []
    bench.turn()
    for failures in range(1, 8):
        bench.line.until_asked(failures)
        bench.line.answer(TryLater("no answer"))
        waits.append(bench.turn())
        bench.now += waits[-1] - 0.001
        assert bench.turn() > 0
        assert len(bench.line.asked) == failures
        bench.now += 0.002
        bench.turn()
    assert waits == [1.5, 3.0, 6.0, 10.5, 18.5, 32.5, 32.5]

    bench.line.until_asked(8)
    bench.line.answer(heard("c1"))
    bench.turn()
    bench.line.until_asked(9)
    bench.line.answer(Refused("what?", status=400))
    assert bench.turn() == 1.5


@pytest.mark.parametrize("how", ["reset", "another broker outage"])
def test_a_long_back_off_ends_at_a_word(bench: Bench, how: str) -> None:
    bench.turn()
    for failures in range(1, 6):
        bench.line.until_asked(failures)
        bench.line.answer(TryLater("no answer"))
        bench.now += bench.turn()
        bench.turn()
    bench.line.until_asked(6)
    bench.line.answer(TryLater("no answer"))
    assert bench.turn() == 32.5
    if how == "reset":
        bench.polling.reset_backoff()
        bench.turn()
    else:
        bench.polling.end()
        bench.turn()
        bench.polling.begin(after_seconds=1.0)
        assert bench.turn() == 1.0
        bench.now += 1.0
        bench.turn()
    bench.line.until_asked(7)
    bench.line.answer(heard("c1"))


def test_when_the_broker_is_back_nothing_is_polled_and_an_answer_on_its_way_is_left(bench: Bench) -> None:
    bench.turn()
    bench.line.until_asked(1)
    bench.polling.end()
    bench.line.answer(heard("c1", "work"))
    assert bench.turn() == IDLE_SECONDS
    assert bench.turn() == IDLE_SECONDS
    assert (bench.heard, len(bench.line.asked)) == ([], 1)


def test_a_dismissed_worker_polls_no_more(bench: Bench) -> None:
    bench.turn()
    bench.line.until_asked(1)
    bench.line.answer(Superseded("started again", code="superseded"))
    bench.turn()
    assert bench.dismissed == ["superseded"]


def test_the_thread_ends_at_once_with_a_poll_out(bench: Bench) -> None:
    bench.polling.start()
    bench.line.until_asked(1)
    bench.polling.stop()
    bench.polling.join(SECONDS)
    assert not bench.polling._thread.is_alive()
    bench.line.answer(heard("c1"))
