"""`gpuyard batch`: looking at batches, following and cancelling them, and their results while they run."""

from pathlib import Path

import pytest

from tests.commands import Commands, ids, rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def submitted(yard: Commands, count: int, model: str) -> str:
    return yard.run("submit", "-", stdin=rows(count, model=model)).out.strip()


def test_results_followed_while_they_come_are_each_row_once(yard: Commands) -> None:
    batch_id = submitted(yard, 40, "slow")
    followed = yard.run("batch", "results", batch_id, "--follow")
    whole = yard.run("batch", "results", batch_id, "-o", "whole.jsonl")

    assert (followed.code, whole.code) == (0, 0), followed.err
    lines = followed.out.splitlines()
    assert sorted(ids(lines)) == sorted(f"row-{number}" for number in range(40))
    assert ids((yard.home / "whole.jsonl").read_bytes()) == [f"row-{number}" for number in range(40)]
    assert len(set(lines) & set((yard.home / "whole.jsonl").read_text().splitlines())) == 40


def test_a_cancelled_batch_keeps_a_line_for_each_row_and_ends_a_watch_with_3(yard: Commands) -> None:
    batch_id = submitted(yard, 300, "slow")
    cancelled = yard.run("batch", "cancel", batch_id, "--json")
    watched = yard.run("batch", "watch", batch_id, "-o", "out.jsonl")

    assert cancelled.document["status"] in {"cancelling", "cancelled"}
    assert watched.code == 3
    assert "not run" in watched.err
    total = yard.run("batch", "show", batch_id, "--json").document["request_counts"]["total"]
    assert len((yard.home / "out.jsonl").read_bytes().splitlines()) == total


def test_a_batch_that_no_worker_is_there_for_says_so_in_the_list_and_alone(yard: Commands) -> None:
    yard.run("pool", "create", "empty")
    batch_id = yard.run("submit", "-", "--pool", "empty", stdin=rows(1)).out.strip()
    reason = None
    while reason is None:
        reason = yard.run("batch", "show", batch_id, "--json").document["gpuyard"]["waiting_reason"]

    assert reason in yard.run("batch", "show", batch_id).out
    assert reason in yard.run("batch", "list").out
    narrow = yard.run("batch", "list", "-n", "3", COLUMNS="80").out
    assert max(map(len, narrow.splitlines())) <= 80
    assert batch_id in narrow
    assert yard.run("batch", "results", batch_id).err.startswith(f"{batch_id} still runs: 0 of 1 rows")
    yard.run("batch", "cancel", batch_id)


def test_the_results_of_a_failed_batch_are_an_error_that_names_the_line(yard: Commands) -> None:
    batch_id = yard.run("submit", "-", "--endpoint", "/v1/completions", stdin=rows(1)).out.strip()
    yard.run("batch", "watch", batch_id)
    done = yard.run("batch", "results", batch_id, "-o", "out.jsonl")

    assert done.code == 3
    assert "line 1: " in done.err
    assert not Path(yard.home / "out.jsonl").exists()


@pytest.mark.parametrize(("name", "code"), [("../tokens?#", 1), ("\x1b[31m", 1), ("\x1b[31m\udcff", 2)])
def test_a_batch_that_is_not_there_is_one_line(yard: Commands, name: str, code: int) -> None:
    done = yard.run("batch", "show", name)

    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 1
    assert "\x1b" not in done.err
