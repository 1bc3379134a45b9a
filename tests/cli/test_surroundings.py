"""Commands in surroundings that nobody takes for granted: closed or full streams, bytes that are no text."""

import json
import os
from pathlib import Path

import pytest

from tests.commands import Commands, rows
from tests.fakes.public_api import FakePublicApi, Says, batch

POOL = {"name": "gpu", "default": True, "slots": {}, "max_load": None, "min_memory_gb": None, "max_losses": None}
POOLS = Says({"data": [POOL | {"timing": {}}], "has_more": False})
NOT_TEXT = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_closed_standard_output_stops_no_command(api: FakePublicApi, told: Commands, form: str) -> None:
    api.says("GET /v1/pools", POOLS)
    done = told.shell(f"{' '.join(told.argv)} pool list {form} >&-; echo $? >&2")

    assert done.err == "0\n"


def test_a_closed_standard_error_stops_no_command(api: FakePublicApi, told: Commands) -> None:
    api.says("GET /v1/pools", POOLS)
    done = told.shell(f"{' '.join(told.argv)} pool list 2>&-; echo $?")

    assert done.out.startswith("pool")
    assert done.out.endswith("\n0\n")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_full_disk_behind_standard_output_is_one_line(api: FakePublicApi, told: Commands, form: str) -> None:
    api.says("GET /v1/pools", POOLS)
    done = told.shell(f"{' '.join(told.argv)} pool list {form} >/dev/full; echo $? >&2")

    said, code = done.err.splitlines()
    assert said == "gpuyard: No space left on device"
    assert code == "1"


def test_a_locale_without_a_letter_gets_another_one(api: FakePublicApi, told: Commands) -> None:
    api.says("GET /v1/batches/batch_b", Says(batch(metadata={"k": "\N{CJK UNIFIED IDEOGRAPH-540D}"})))
    listed = Says({"data": [batch(gpuyard={"waiting_reason": "\N{CJK UNIFIED IDEOGRAPH-540D}"})], "has_more": False})
    api.says("GET /v1/batches", listed)
    shown, table = (told.run("batch", *words, PYTHONIOENCODING="latin-1") for words in (["show", "batch_b"], ["list"]))

    assert (shown.code, shown.err, table.code, table.err) == (0, "", 0, "")
    assert "k=?" in shown.out
    assert "waits: ?" in table.out


def test_a_file_whose_name_is_no_text_is_sent_as_any_other(api: FakePublicApi, told: Commands) -> None:
    (told.home / NOT_TEXT).write_bytes(rows(1))
    api.says("POST /v1/files", Says({"id": "file-1"}))
    api.says("POST /v1/batches", Says(batch("validating")))
    done = told.run("submit", NOT_TEXT)

    assert (done.code, done.out) == (0, "batch_b\n"), done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("batch", "show", NOT_TEXT),
        ("events", "--subject", NOT_TEXT),
        ("token", "create", NOT_TEXT),
        ("submit", "in.jsonl", "--metadata", f"k={NOT_TEXT}"),
    ],
)
def test_words_that_are_no_text_are_wrong_usage(api: FakePublicApi, told: Commands, arguments: tuple[str, ...]) -> None:
    (told.home / "in.jsonl").write_bytes(rows(1))
    done = told.run(*arguments)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "no text in UTF-8" in done.err
    assert api.calls == []


def test_a_closed_standard_input_is_one_line(api: FakePublicApi, told: Commands) -> None:
    done = told.shell(f"{' '.join(told.argv)} submit - <&-")

    assert done.err == "gpuyard: cannot read standard input: it is closed\n"
    assert api.calls == []


@pytest.mark.parametrize("place", ["-", "file"])
def test_a_password_that_is_no_text_is_not_shown(tmp_path: Path, place: str) -> None:
    content = b"secret\xff\n"
    (tmp_path / "file").write_bytes(content)
    done = Commands(tmp_path).run("broker", "acl", "gpu", "--password-file", place, stdin=content)

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "no text in UTF-8" in done.err


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/none"])
@pytest.mark.parametrize("how", ["option", "variable"])
def test_up_says_of_a_place_that_takes_no_data_what_to_do(tmp_path: Path, place: str, how: str) -> None:
    (tmp_path / "file").write_text("mine")
    commands = Commands(tmp_path)
    done = (
        commands.run("up", "--data", place, "--port", "0")
        if how == "option"
        else commands.run("up", "--port", "0", GPUYARD_DATA_DIR=place)
    )

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"gpuyard: no data can be kept in {tmp_path / place} ({tmp_path / place}: ")
    assert "--data" in done.err
    assert "Err" not in done.err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_ready_file_that_is_a_folder_is_found_before_anything_is_started(tmp_path: Path) -> None:
    done = Commands(tmp_path).run("up", "--ready-file", tmp_path)

    assert (done.code, done.out) == (2, "")
    assert not (tmp_path / "data").exists()


def test_a_worker_whose_folder_is_a_file_says_so_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    settings = {"GPUYARD_SERVER_URL": "http://127.0.0.1:9", "GPUYARD_API_KEY": "gk-any", "GPUYARD_LOG_JSON": "1"}
    done = Commands(tmp_path, settings).run("worker", "--transport", "http", "--state-dir", "file", "--runtime", "fake")
    said = json.loads(done.err.splitlines()[-1])

    assert (done.code, said["event"], said["why"]) == (1, "worker.refused", f"{tmp_path}/file: it is no folder")
