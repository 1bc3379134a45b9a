"""A trigger without a permit goes home; so a worker never claims what it cannot start (PROTOCOL 6)."""

import threading

from app.worker.gate import Gate, Permit


def entered(gate: Gate) -> Permit:
    permit = gate.try_enter()
    assert permit is not None
    return permit


def opened(slots: int) -> Gate:
    gate = Gate(slots)
    gate.open()
    return gate


def test_nobody_enters_a_closed_gate() -> None:
    gate = Gate(1)
    assert gate.try_enter() is None
    gate.open()
    entered(gate)
    gate.close()
    assert gate.try_enter() is None


def test_one_slot_is_one_permit_however_many_trigger_at_once() -> None:
    gate = opened(1)
    barrier = threading.Barrier(8)
    got: list[Permit | None] = []

    def trigger() -> None:
        barrier.wait()
        got.append(gate.try_enter())

    threads = [threading.Thread(target=trigger) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(permit is not None for permit in got) == 1


def test_the_next_batch_enters_while_the_last_rows_of_the_old_one_run() -> None:
    gate = opened(1)
    old = entered(gate)
    assert gate.try_enter() is None
    old.all_started()
    entered(gate)


def test_no_third_batch_enters_while_two_are_at_their_last_rows() -> None:
    gate = opened(1)
    first, second = entered(gate), None
    first.all_started()
    second = entered(gate)
    second.all_started()
    assert gate.try_enter() is None
    first.close()
    entered(gate)


def test_giving_a_permit_back_twice_counts_once() -> None:
    gate = opened(2)
    permit = entered(gate)
    for _ in range(3):
        permit.all_started()
        permit.close()
    entered(gate)
    entered(gate)
    assert gate.try_enter() is None


def test_each_change_is_told_without_the_lock() -> None:
    seen: list[bool] = []
    gate = Gate(1, lambda: seen.append(gate.has_room))
    gate.open()
    entered(gate).close()
    assert seen == [True, False, True]


def test_the_pools_word_on_slots_lets_more_in_and_throws_nobody_out() -> None:
    gate = opened(1)
    entered(gate)
    assert gate.try_enter() is None
    gate.resize(None)
    assert gate.try_enter() is None
    gate.resize(2)
    entered(gate)
    gate.resize(1)
    assert gate.try_enter() is None
