"""Why rows failed, and running them again: what a person types after a batch of which some rows failed."""

import json
import re

import pytest

from tests.commands import Commands, ids, rows
from tests.fakes.public_api import FakePublicApi, Says, batch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
REASON = re.compile(r"^  2 x 500 .*: ", re.MULTILINE)


def half_failed(yard: Commands) -> str:
    """A batch of four rows; the second and the fourth fail, and of two rows the second."""
    done = yard.run("submit", "-", "--watch", "--json", "--metadata", "run=1", stdin=rows(4, model="broken"))
    assert done.code == 4, done.err
    batch_id: str = done.document["id"]
    assert REASON.search(done.err)
    assert f"gpuyard batch errors {batch_id}\n" in done.err
    assert f"gpuyard batch retry {batch_id}\n" in done.err
    return batch_id


def statuses(lines: str | bytes) -> list[int]:
    return [json.loads(line)["response"]["status_code"] for line in lines.splitlines()]


def test_the_end_of_a_batch_says_why_rows_failed_and_so_do_show_watch_and_errors(yard: Commands) -> None:
    batch_id = half_failed(yard)
    watched = yard.run("batch", "watch", batch_id)
    assert (watched.code, bool(REASON.search(watched.err))) == (4, True)
    assert re.search(r"^error +2 x 500 .*: ", yard.run("batch", "show", batch_id).out, re.MULTILINE)
    (top,) = yard.run("batch", "show", batch_id, "--json").document["gpuyard"]["top_errors"]
    assert (top["count"], top["code"].split()[0]) == (2, "500")

    listed = yard.run("batch", "errors", batch_id)
    assert (listed.code, listed.err) == (0, "")
    assert re.findall(r"row-\d", listed.out) == ["row-1", "row-3"]
    assert listed.out.splitlines()[0].split() == ["rows", "code", "message"]
    document = yard.run("batch", "errors", batch_id, "--code", "500", "--limit", "1", "--json").document
    assert ([each["custom_id"] for each in document["failed"]], document["data"]) == (["row-1"], [top])
    none = yard.run("batch", "errors", batch_id, "--code", "400")
    assert (none.code, none.out, none.err) == (0, "", "no row failed with 400\n")


def test_failed_rows_run_again_until_all_are_answered(yard: Commands) -> None:
    first = half_failed(yard)
    second = yard.run("batch", "retry", first).out.strip()
    assert yard.run("batch", "watch", second).code == 4
    third = yard.run("batch", "retry", second, "--code", "500").out.strip()
    assert yard.run("batch", "watch", third).code == 0

    whole = yard.run("batch", "results", first, "--with-retries", "-o", "whole.jsonl")
    assert (whole.code, whole.err) == (0, "")
    merged = (yard.home / "whole.jsonl").read_bytes()
    assert ids(merged) == [f"row-{number}" for number in range(4)]
    assert statuses(merged) == [200] * 4
    assert statuses(yard.run("batch", "results", first).out) == [200, 500, 200, 500]
    assert ids(yard.run("batch", "results", second, "--with-retries").out) == ["row-1", "row-3"]
    shown = yard.run("batch", "show", second).out
    assert re.search(rf"^retry of +{first}$", shown, re.MULTILINE)
    assert re.search(rf"^retried by +{third}$", shown, re.MULTILINE)


def test_its_options_are_those_of_the_new_batch(yard: Commands) -> None:
    first = half_failed(yard)
    asked = (
        "--priority",
        "0",
        "--group",
        "g",
        "--completion-window",
        "2h",
        "--metadata",
        "run=2",
        "--canary-rows",
        "0",
    )
    made = yard.run("batch", "retry", first, "--all", "--json", *asked).document
    assert (made["completion_window"], made["metadata"]) == ("2h", {"run": "2"})
    assert [made["gpuyard"][name] for name in ("priority", "group", "canary_rows")] == [0, "g", 0]
    assert yard.run("batch", "watch", made["id"]).code == 4
    assert ids(yard.run("batch", "results", made["id"]).out) == [f"row-{number}" for number in range(4)]


def test_what_cannot_be_retried_is_one_line_that_says_why(yard: Commands) -> None:
    good = yard.run("submit", "-", "--watch", "--json", stdin=rows(1)).document["id"]
    done = yard.run("batch", "retry", good)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "nothing to run again" in done.err
    for two in (("--all", "--failed"), ("--expired", "--code", "500")):
        assert yard.run("batch", "retry", good, *two).code == 2
    assert yard.run("batch", "errors", good).err == "no row failed\n"
    invalid = yard.run("submit", "-", "--watch", "--json", stdin=rows(1) + b"no json\n").document["id"]
    assert re.match(r"error +line 2: ", yard.run("batch", "errors", invalid).out)
    assert "line 2: " in yard.run("batch", "retry", invalid).err


def test_results_say_which_retries_are_not_in_them_yet(api: FakePublicApi, told: Commands) -> None:
    def linked(status: str, *retried_by: str) -> Says:
        return Says(batch(status, gpuyard={"retried_by": list(retried_by)}))

    api.says("GET /v1/batches/batch_b", linked("completed", "batch_c", "batch_d"))
    api.says("GET /v1/batches/batch_c", linked("completed", "batch_e"))
    api.says("GET /v1/batches/batch_d", linked("in_progress"))
    api.says("GET /v1/batches/batch_e", linked("validating"))
    api.says("GET /v1/batches/batch_b/results", Says(b'{"custom_id": "x"}\n' * 3))
    done = told.run("batch", "results", "batch_b", "--with-retries")
    assert done.out == '{"custom_id": "x"}\n' * 3
    assert [line.split()[0] for line in done.err.splitlines()] == ["batch_e", "batch_d"]
    assert "GET /v1/batches/batch_b/results?with_retries=true" in api.calls


def test_a_server_that_cannot_say_why_rows_failed_costs_no_results(api: FakePublicApi, told: Commands) -> None:
    api.says("GET /v1/batches/batch_b", Says(batch(completed=1, gpuyard={"top_errors": [{"count": 2, "code": "x"}]})))
    api.says("GET /v1/batches/batch_b/errors", Says({"error": {"message": "gone", "code": "content_missing"}}, 404))
    api.says("GET /v1/batches/batch_b/results", Says(b'{"custom_id": "x"}\n' * 3))
    done = told.run("batch", "watch", "batch_b", "-o", "out.jsonl")
    assert "  2 x x\n" in done.err
    assert (told.home / "out.jsonl").read_bytes().count(b"\n") == 3
