"""`gpuyard submit` against a whole installation."""

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.commands import Commands, ids, rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    file = tmp_path / "three.jsonl"
    file.write_bytes(rows(3))
    return file


def test_it_prints_the_id_of_the_batch_and_returns_at_once(yard: Commands, three: Path) -> None:
    done = yard.run("submit", three)

    assert (done.code, done.err) == (0, "")
    assert yard.run("batch", "show", done.out.strip()).code == 0


def test_its_options_are_those_of_the_batch(yard: Commands, three: Path) -> None:
    done = yard.run(
        *("submit", three, "--json", "--pool", "gpu", "--priority", "7", "--group", "night"),
        *("--completion-window", "2h", "--metadata", "a=1", "--metadata", "名=x=y"),
        *("--unsupported-parameters", "drop"),
    )

    batch = done.document
    assert batch["metadata"] == {"a": "1", "名": "x=y"}
    assert batch["completion_window"] == "2h"
    assert batch["endpoint"] == "/v1/chat/completions"
    assert [batch["gpuyard"][name] for name in ("pool", "priority", "group")] == ["gpu", 7, "night"]
    assert batch["gpuyard"]["unsupported_parameters"] == "drop"


def test_a_batch_without_failures_ends_with_0_and_a_line_for_each_row_in_order(yard: Commands, three: Path) -> None:
    done = yard.run("submit", three, "--watch", "-o", "out.jsonl")

    assert (done.code, done.out) == (0, ""), done.err
    assert ids((yard.home / "out.jsonl").read_bytes()) == ["row-0", "row-1", "row-2"]
    assert "3 rows, 3 answered" in done.err


def test_failed_rows_are_in_the_one_file_and_end_it_with_4(yard: Commands) -> None:
    done = yard.run("submit", "-", "-o", "out.jsonl", "--json", stdin=rows(4, model="broken"))

    lines = [json.loads(line) for line in (yard.home / "out.jsonl").read_bytes().splitlines()]
    assert done.code == 4
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(4)]
    assert sorted(line["response"]["status_code"] for line in lines) == [200, 200, 500, 500]
    assert done.document["request_counts"] == {"total": 4, "completed": 2, "failed": 2}


def test_a_batch_that_fails_its_validation_ends_with_3_and_says_which_line(yard: Commands) -> None:
    (yard.home / "out.jsonl").write_text("of an earlier batch")
    done = yard.run("submit", "-", "-o", "out.jsonl", stdin=rows(1) + b"no json\n")

    assert done.code == 3
    assert "line 2: " in done.err
    assert (yard.home / "out.jsonl").read_text() == "of an earlier batch"


def test_the_results_of_standard_input_go_to_standard_output(yard: Commands) -> None:
    done = yard.run("submit", "-", "-o", "-", stdin=rows(2))

    assert done.code == 0, done.err
    assert ids(done.out) == ["row-0", "row-1"]


def test_ctrl_c_leaves_the_batch_running_and_says_how_to_come_back(yard: Commands) -> None:
    (yard.home / "slow.jsonl").write_bytes(rows(200, model="slow"))
    process = yard.start("submit", "slow.jsonl", "--watch")
    assert process.stderr is not None
    batch_id = process.stderr.readline().split()[0]
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert f"gpuyard batch watch {batch_id}" in err
    assert "Traceback" not in err
    assert yard.run("batch", "cancel", batch_id).out.split()[1] in {"cancelling", "cancelled"}


def test_a_full_disk_is_one_line_that_says_where_the_results_are(yard: Commands, three: Path) -> None:
    done = yard.run("submit", three, "-o", "/dev/full")

    assert done.code == 1
    assert "cannot write /dev/full: No space left on device" in done.err
    assert "gpuyard batch results batch_" in done.err


def test_an_unknown_pool_is_refused_and_leaves_no_file_behind(yard: Commands) -> None:
    (yard.home / "unwanted.jsonl").write_bytes(rows(1))
    done = yard.run("submit", "unwanted.jsonl", "--pool", "nowhere")

    assert (done.code, done.out) == (1, "")
    assert "nowhere" in done.err
    assert len(done.err.splitlines()) == 1
    bearer = {"authorization": f"Bearer {yard.settings['GPUYARD_API_KEY']}"}
    files = httpx.get(f"{yard.settings['GPUYARD_SERVER_URL']}/v1/files", headers=bearer).json()["data"]
    assert "three.jsonl" in {file["filename"] for file in files}
    assert "unwanted.jsonl" not in {file["filename"] for file in files}


def test_a_loop_over_a_folder_sends_each_file_and_leaves_its_results(yard: Commands) -> None:
    for name, count in (("a", 2), ("b and c", 3)):
        (yard.home / f"{name}.jsonl").write_bytes(rows(count))
    gpuyard = yard.home / "gpuyard"
    gpuyard.write_text(f'#!/bin/sh\nexec {" ".join(yard.argv)} "$@"\n')
    gpuyard.chmod(0o755)
    loop = 'for f in *.jsonl; do ./gpuyard submit "$f" -o "${f%.jsonl}.out" || exit; done'
    done = yard.shell(loop)

    assert done.code == 0, done.err
    assert ids((yard.home / "a.out").read_bytes()) == ["row-0", "row-1"]
    assert ids((yard.home / "b and c.out").read_bytes()) == ["row-0", "row-1", "row-2"]


def test_a_batch_that_was_stopped_for_its_first_rows_ends_with_3_and_a_line_for_each_row(yard: Commands) -> None:
    done = yard.run(*("submit", "-", "-o", "out.jsonl", "--canary-rows", "2"), stdin=rows(12, model="refusing"))

    assert done.code == 3
    assert "10 not run" in done.err
    assert "The first 2 rows that ran all failed alike, with 400" in done.err
    lines = (yard.home / "out.jsonl").read_bytes()
    assert ids(lines) == [f"row-{number}" for number in range(12)]
    batch_id = next(word for word in done.err.split() if word.startswith("batch_"))
    assert yard.run("batch", "results", batch_id).out.encode() == lines
    assert "first_rows_failed" in yard.run("batch", "show", batch_id).out


def test_without_a_canary_all_rows_run_and_end_it_with_4(yard: Commands) -> None:
    done = yard.run(*("submit", "-", "--watch", "--json", "--canary-rows", "0"), stdin=rows(12, model="refusing"))

    assert done.code == 4
    assert done.document["request_counts"] == {"total": 12, "completed": 0, "failed": 12}
