"""What one hand-in carries: each shard's finished rows once, in parts with a sequence, and the shards that end."""

from app.domain.rows import Reply, RowErrorCode, Usage
from app.schemas.claims import Grant
from app.schemas.handins import read_hand_in, write_line
from app.schemas.segments import MAX_LEASES, HandInHeader
from app.worker.backlog import Backlog
from app.worker.handin import HandIn, build
from app.worker.shard import Fate, Finished, Shard
from tests.worker.units import queue_of, unit

OK = Reply(status=200, body=b"{}", usage=Usage(input_tokens=2, total_tokens=2))
BAD = Reply(status=400, body=b'{"error":{}}')


def shard(lease_id: int, rows: int, *, first_row: int = 0, done: str = "") -> Shard:
    grant = Grant(lease_id=lease_id, job_id=1, number=0, first_row=first_row, rows=rows, start=0, end=1, done=done)
    return Shard(grant, Backlog(queue_of()), lambda _shard: None)


def finish(of: Shard, *rows: int, reply: Reply = OK) -> None:
    for row in rows:
        of.begin()
        of.finish(Finished(row, write_line(row, reply, b"{}"), reply.ok, reply.usage))


def header(of: HandIn | None) -> HandInHeader:
    assert of is not None
    return HandInHeader.model_validate_json(of.body.partition(b"\n")[0])


def test_rows_of_all_shards_go_in_one_body_part_after_part() -> None:
    one, two = shard(1, 4), shard(2, 4, first_row=4)
    one.loaded(4)
    two.loaded(4)
    finish(one, 2, 0)
    finish(two, 5)
    finish(two, 6, reply=BAD)
    built = build("wrk_1", "batch_1", [one, two])
    first, second = header(built).parts
    assert (first.lease_id, first.seq, first.rows, first.completed, first.failed) == (1, 1, "0,2", 2, 0)
    assert (second.lease_id, second.seq, second.rows, second.completed, second.failed) == (2, 1, "5-6", 1, 1)
    assert first.usage.input_tokens == 4
    content = built.body.partition(b"\n")[2] if built else b""
    assert len(content) == first.length + second.length
    assert [line.partition(b"\t")[0] for line in content.splitlines()] == [b"2", b"0", b"5", b"6"]


def test_token_counts_that_a_runtime_made_up_keep_no_row_from_going_home() -> None:
    one = shard(1, 2)
    one.loaded(2)
    finish(one, 0, 1, reply=Reply(status=200, body=b"{}", usage=Usage(input_tokens=1, total_tokens=2**53 - 1)))
    (part,) = header(build("wrk_1", "batch_1", [one])).parts
    assert (part.rows, part.usage.input_tokens, part.usage.total_tokens) == ("0-1", 2, 2**40)


def test_rows_are_taken_once_and_the_sequence_goes_on() -> None:
    one = shard(1, 4)
    one.loaded(4)
    finish(one, 0)
    build("wrk_1", "batch_1", [one])
    assert build("wrk_1", "batch_1", [one]) is None
    finish(one, 1)
    assert header(build("wrk_1", "batch_1", [one])).parts[0].seq == 2


def test_a_shard_ends_with_its_last_row() -> None:
    one = shard(1, 3, done="1")
    one.loaded(2)
    finish(one, 0)
    assert header(build("wrk_1", "batch_1", [one])).ends == []
    finish(one, 2)
    (end,) = header(build("wrk_1", "batch_1", [one])).ends
    assert (end.lease_id, end.request_id) == (1, one.end_request)


def test_a_shard_whose_rows_were_all_done_before_ends_without_a_part() -> None:
    one = shard(1, 3, done="0-2")
    one.loaded(0)
    found = header(build("wrk_1", "batch_1", [one]))
    assert (found.parts, [end.lease_id for end in found.ends]) == ([], [1])


def test_a_hand_in_stays_below_its_bound_and_takes_one_larger_row_alone() -> None:
    one = shard(1, 3)
    one.loaded(3)
    for row in range(3):
        one.begin()
        one.finish(Finished(row, b"x" * 100, completed=True, usage=Usage()))
    sizes = []
    while built := build("wrk_1", "batch_1", [one], max_bytes=250):
        sizes.append(built.line_bytes)
        assert bool(header(built).ends) == one.is_empty
    assert sizes == [200, 100]
    two = shard(2, 1)
    two.loaded(1)
    two.begin()
    two.finish(Finished(0, b"x" * 1000, completed=True, usage=Usage()))
    assert header(build("wrk_1", "batch_1", [two], max_bytes=250)).parts[0].length == 1000


def test_what_the_control_plane_reads_is_what_was_written() -> None:
    from app.domain.outputs import output_line  # noqa: PLC0415 - only here

    line = write_line(3, OK, output_line("batch_1", 3, "row-3", OK))
    (found,) = read_hand_in("batch_1", [line])
    assert (found.row, found.completed) == (3, True)


class TestAShard:
    def test_that_leaves_starts_no_row_and_keeps_what_is_finished(self) -> None:
        one = shard(1, 3)
        one.loaded(3)
        assert one.begin()
        one.leave("a drain")
        assert not one.begin()
        assert not one.is_settled
        one.finish(Finished(0, b"x", completed=True, usage=Usage()))
        assert one.is_settled
        assert header(build("wrk_1", "batch_1", [one])).ends == []

    def test_that_is_dropped_forgets_its_rows_and_cuts_what_runs(self) -> None:
        one = shard(1, 3)
        one.loaded(3)
        finish(one, 0)
        one.drop("stale")
        assert one.token.is_cancelled
        assert build("wrk_1", "batch_1", [one]) is None

    def test_that_is_dropped_never_comes_back(self) -> None:
        one = shard(1, 3)
        one.drop("stale")
        one.leave("a drain")
        one.fail(RowErrorCode.INTERNAL_ERROR, "late")
        assert one.fate is Fate.GONE
        assert not one.loaded(3)

    def test_that_leaves_and_then_fails_costs_no_attempt(self) -> None:
        one = shard(1, 3)
        one.leave("a drain")
        one.fail(RowErrorCode.INTERNAL_ERROR, "its download was cut by the drain")
        assert (one.fate, one.failure, one.reason) == (Fate.LEAVING, None, "a drain")

    def test_with_a_row_that_finishes_after_the_drop_hands_nothing_in(self) -> None:
        one = shard(1, 1)
        one.loaded(1)
        one.begin()
        one.drop("stale")
        one.finish(Finished(0, b"x", completed=True, usage=Usage()))
        assert build("wrk_1", "batch_1", [one]) is None


def test_too_much_that_is_unsent_holds_the_rows_until_it_is_sent() -> None:
    rows = queue_of()
    rows.put([unit(1), unit(2)])
    backlog = Backlog(rows, max_bytes=100)
    backlog.add(101)
    assert rows.take() is None
    backlog.subtract(1)
    assert rows.take() is not None


def test_more_shards_than_one_may_name_go_with_the_next() -> None:
    shards = [shard(number, 1, first_row=number) for number in range(1, MAX_LEASES + 3)]
    for row, one in enumerate(shards, 1):
        one.loaded(1)
        finish(one, row)
    first = header(build("wrk_1", "batch_1", shards))
    second = header(build("wrk_1", "batch_1", shards))
    assert (len(first.parts), len(first.ends)) == (MAX_LEASES, MAX_LEASES)
    assert [part.lease_id for part in second.parts] == [MAX_LEASES + 1, MAX_LEASES + 2]
    assert [end.lease_id for end in second.ends] == [MAX_LEASES + 1, MAX_LEASES + 2]
