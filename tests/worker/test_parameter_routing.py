"""On a worker with several runtimes a row goes to one that takes its parameters, or runs without them and says so."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.domain.rows import Reply, Row, RowErrorCode
from app.worker.agent import Agent
from app.worker.breaker import FAILURES
from app.worker.parameters import asking
from app.worker.row_queue import RowQueue
from app.worker.runtimes import DOWN_SECONDS, RuntimeGone, Runtimes
from app.worker.sizing import READ_SECONDS
from app.worker.units import Unit
from executors.cancellation import CancelToken
from tests.fakes.control_plane import FakeControlPlane
from tests.worker.refusing import Refusing
from tests.worker.units import ENDPOINT, ONE, runtimes_of

BODY = b'{"model":"fake","logit_bias":{"1":2},"n":2}'


def asked(*, may_drop: bool = False) -> Row:
    return asking(Row(0, "row-0", ENDPOINT, "fake", BODY), may_drop=may_drop)


def run(runtimes: Runtimes, row: Row) -> Reply:
    queue = RowQueue(runtimes)
    queue.put([Unit(ONE, row)])
    taken = queue.take()
    assert taken is not None
    reply = runtimes.execute(taken, timeout=5, cancelled=CancelToken())
    queue.done(taken)
    queue.close()
    return reply


@pytest.mark.parametrize("may_drop", [False, True])
def test_a_row_goes_to_the_runtime_that_takes_all_it_asks_for(*, may_drop: bool) -> None:
    picky, taking = Refusing("n"), Refusing("z")
    runtimes = runtimes_of(picky, taking)
    for _ in range(3):
        reply = run(runtimes, asked(may_drop=may_drop))
        assert (reply.ok, reply.dropped) == (True, ())
    assert (picky.bodies, taking.bodies) == ([], [BODY] * 3)


def test_rows_that_ask_for_nothing_go_to_all() -> None:
    one, other = Refusing("n"), Refusing("logit_bias")
    runtimes = runtimes_of(one, other)
    plain = replace(asked(), parameters=frozenset())
    for _ in range(2):
        run(runtimes, plain)
    assert (one.bodies, other.bodies) == ([BODY], [BODY])


def test_a_row_that_no_runtime_takes_fails_and_says_for_what() -> None:
    reply = run(runtimes_of(Refusing("n"), Refusing("n", "logit_bias")), asked())
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER
    assert reply.error.message == ("No runtime of this worker that serves 'fake' takes all of this: logit_bias, n")


def test_while_one_is_away_another_worker_may_know_who_takes_it() -> None:
    away = Refusing()
    away.alive = False
    with pytest.raises(RuntimeGone):
        run(runtimes_of(Refusing("n"), away, Refusing("n")), replace(asked(), model="other"))


def test_a_row_waits_for_the_runtime_that_takes_it_while_that_is_away() -> None:
    picky, taking = Refusing("n"), Refusing()
    runtimes = runtimes_of(picky, taking)
    taking.alive = False
    runtimes.probe()
    queue = RowQueue(runtimes)
    queue.put([Unit(ONE, asked())])
    assert queue.take() is None
    taking.alive = True
    runtimes.probe()
    assert queue.take() is not None


def test_what_no_runtime_takes_is_left_out_where_the_batch_allows_it() -> None:
    picky = Refusing("n")
    reply = run(runtimes_of(picky), asked(may_drop=True))
    assert (reply.ok, reply.dropped) == (True, ("n",))
    assert picky.bodies == [b'{"model":"fake","logit_bias":{"1":2}}']


def test_it_is_left_out_too_while_the_one_that_takes_it_is_away() -> None:
    """Else the shard would come back again and again: a worker may claim it for its other runtime."""
    picky, taking = Refusing("n"), Refusing()
    runtimes = runtimes_of(picky, taking)
    taking.alive = False
    runtimes.probe()
    assert run(runtimes, asked(may_drop=True)).dropped == ("n",)
    taking.alive = True
    runtimes.probe()
    assert run(runtimes, asked(may_drop=True)).dropped == ()


def test_it_is_left_out_while_the_one_that_takes_it_is_down_by_its_rows() -> None:
    now = [0.0]
    picky, taking = Refusing("n"), Refusing()
    runtimes = runtimes_of(picky, taking, clock=lambda: now[0])
    assert run(runtimes, asked(may_drop=True)).dropped == ()
    for _ in range(FAILURES):
        runtimes.places[1].breaker.failed("it hangs")
    now[0] += DOWN_SECONDS + 1
    assert runtimes.look()
    assert [info.alive for info in runtimes.infos()] == [True, False]
    assert run(runtimes, asked(may_drop=True)).dropped == ("n",)


def test_what_a_row_is_about_is_never_left_out() -> None:
    row = replace(asked(may_drop=True), parameters=frozenset({"messages.image_url", "n"}))
    reply = run(runtimes_of(Refusing("messages.image_url", "n")), row)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER


def test_the_control_plane_is_told_and_told_again_when_it_changes() -> None:
    picky = Refusing("n")
    runtimes = runtimes_of(picky)
    assert [info.unsupported for info in runtimes.infos()] == [{ENDPOINT: ["n"]}]
    assert not runtimes.probe()
    picky.refused = frozenset({"n", "logit_bias"})
    assert runtimes.probe()
    assert [info.unsupported for info in runtimes.infos()] == [{ENDPOINT: ["logit_bias", "n"]}]


def test_rows_that_no_runtime_was_asked_say_nothing_of_how_many_at_once_one_takes(
    plane: FakeControlPlane, start_agent: Callable[..., Agent]
) -> None:
    """They end as they begin: with thousands of them `auto` would find that any number pays."""
    line = b'{"custom_id":"row-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"fake","n":2}}'
    plane.give_batch([line % number for number in range(40)], shard_rows=40)
    plane.shards[0]["parameters"] = ["n"]
    agent = start_agent([Refusing("n")], max_concurrent_prompts="auto")
    plane.wait(lambda: plane.states() == {1: "reported"})
    assert all(b"UNSUPPORTED_PARAMETER" in stored for stored in plane.stored.values())
    assert agent._own.size.seconds_between_readings == READ_SECONDS
