"""Rows that are not started yet: taken by lanes, held for reasons, thrown away when their shard leaves."""

import threading

from app.worker.row_queue import RowQueue


def test_rows_come_out_in_order() -> None:
    queue: RowQueue[int] = RowQueue()
    queue.put([1, 2])
    queue.put([3])
    assert [queue.take() for _ in range(4)] == [1, 2, 3, None]


def test_held_rows_wait_until_every_reason_is_taken_back() -> None:
    queue: RowQueue[int] = RowQueue()
    queue.put([1])
    queue.hold("a")
    queue.hold("b")
    queue.let_go("a")
    assert queue.take() is None
    queue.let_go("b")
    assert queue.take() == 1


def test_a_lane_wakes_for_a_row_and_for_the_end() -> None:
    queue: RowQueue[int] = RowQueue()
    woke: list[bool] = []
    lanes = [threading.Thread(target=lambda: woke.append(queue.wait())) for _ in range(2)]
    lanes[0].start()
    queue.put([1])
    lanes[0].join(5)
    queue.take()
    lanes[1].start()
    queue.close()
    lanes[1].join(5)
    assert woke == [True, False]


def test_whoever_waits_for_few_rows_wakes_when_they_are_few() -> None:
    queue: RowQueue[int] = RowQueue()
    queue.put(range(10))
    waiter = threading.Thread(target=queue.wait_low, args=(3, 30))
    waiter.start()
    while len(queue) > 3:
        queue.take()
    waiter.join(5)
    assert not waiter.is_alive()


def test_discarded_rows_are_gone_and_the_rest_stays() -> None:
    queue: RowQueue[int] = RowQueue()
    queue.put(range(6))
    assert queue.discard(lambda item: item % 2 == 0) == [0, 2, 4]
    assert [queue.take() for _ in range(4)] == [1, 3, 5, None]


def test_nothing_enters_a_closed_queue() -> None:
    queue: RowQueue[int] = RowQueue()
    queue.close()
    queue.put([1])
    assert (len(queue), queue.take(), queue.wait()) == (0, None, False)
