"""A poll answers with what its worker does not know: nothing twice, and nothing lost with an answer."""

import pytest

from app.domain.polls import AGAIN_SECONDS, MAX_CURSOR, Bell, Message, MessageKind, Standing, Told, news

WORK = Bell("batch_1", 3)


def said(told: Told, standing: Standing) -> list[Message]:
    return news(told, standing)[0]


def test_what_stands_is_said_once_to_whoever_brings_the_cursor_of_the_answer() -> None:
    standing = Standing(now=1000, drain_at=5, reset_at=6, stopping=("batch_2",), bell=WORK)
    messages, after = news(Told(), standing)

    assert messages == [
        Message(MessageKind.DRAIN),
        Message(MessageKind.RESET_BACKOFF),
        Message(MessageKind.STOP, "batch_2"),
        Message(MessageKind.WORK, "batch_1"),
    ]
    assert said(Told.read(after.cursor), standing) == []


def test_what_a_lost_answer_said_is_said_again_to_the_old_cursor() -> None:
    standing = Standing(now=1000, reset_at=6, bell=WORK)
    lost, _ = news(Told(), standing)
    assert said(Told.read(Told().cursor), standing) == lost


def test_a_command_that_is_given_again_is_another_command() -> None:
    _, after = news(Told(), Standing(now=1, reset_at=6))
    assert said(after, Standing(now=2, reset_at=7)) == [Message(MessageKind.RESET_BACKOFF)]


def test_a_batch_that_stops_beside_one_that_is_known_to_stop_is_said_alone() -> None:
    _, after = news(Told(), Standing(now=1, stopping=("batch_1",)))
    assert said(after, Standing(now=2, stopping=("batch_1", "batch_2"))) == [Message(MessageKind.STOP, "batch_2")]


@pytest.mark.parametrize(
    ("now", "bell", "rings"),
    [
        (1000 + 4999, WORK, False),
        (1000 + int(AGAIN_SECONDS * 1000), WORK, True),
        (1001, Bell("batch_1", 4), True),
        (1001, Bell("batch_9", 1), True),
    ],
)
def test_the_same_work_rings_again_after_five_seconds_and_other_work_at_once(now: int, bell: Bell, rings: bool) -> None:
    _, after = news(Told(), Standing(now=1000, bell=WORK))
    assert bool(said(after, Standing(now=now, bell=bell))) is rings


@pytest.mark.parametrize("cursor", [None, "", "x", "é", "bnVsbA==", "W10=", "WzEsMiwzLDQsNV0=", "9" * 50])
def test_a_cursor_of_somebody_s_making_says_that_nothing_was_told(cursor: str | None) -> None:
    assert Told.read(cursor) == Told()


def test_the_longest_cursor_is_one_that_may_come_back() -> None:
    stopping = tuple(f"batch_{n:032}" for n in range(64))
    told = Told(1 << 45, 1 << 45, stopping, Bell("batch_" + "0" * 32, 1 << 31), 1 << 45)
    assert len(told.cursor) < MAX_CURSOR
    assert Told.read(told.cursor) == told
