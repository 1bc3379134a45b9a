"""What every command keeps to: one JSON document, one line for an error, nothing a terminal would obey."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.errors import CliError
from app.cli.inputs import open_input
from tests.commands import Commands, rows
from tests.fakes.public_api import FakePublicApi, Says, batch

LISTS = {"batch": "/v1/batches", "worker": "/v1/workers"}
EMPTY = Says({"object": "list", "data": [], "has_more": False})


@pytest.mark.parametrize("group", LISTS)
def test_a_list_of_nothing_is_an_empty_document_or_a_hint(api: FakePublicApi, told: Commands, group: str) -> None:
    api.says(f"GET {LISTS[group]}", EMPTY)

    assert told.run(group, "list", "--json").document == []
    said = told.run(group, "list")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("no ")


def test_a_list_is_read_page_after_page(api: FakePublicApi, told: Commands) -> None:
    pages = [Says({"data": [token(f"tok_{number}")], "has_more": number < 3}) for number in (1, 2, 3)]
    api.says("GET /v1/tokens", *pages)

    assert [each["id"] for each in told.run("token", "list", "--json").document] == ["tok_1", "tok_2", "tok_3"]
    assert api.calls == [f"GET /v1/tokens{after}" for after in ("", "?after=tok_1", "?after=tok_2")]


def token(id_: str) -> dict[str, object]:
    return {"id": id_, "name": "n", "prefix": "gk-n", "scopes": ["read"], "revoked_at": None, "last_used_at": None}


def test_the_shell_completes_commands(tmp_path: Path) -> None:
    asked = {"_GPUYARD_COMPLETE": "complete_bash", "COMP_WORDS": "gpuyard webhook redel", "COMP_CWORD": "2"}
    assert Commands(tmp_path).run(**asked).out.split() == ["redeliver"]


def test_a_server_that_is_not_there_is_one_line_that_names_it(tmp_path: Path) -> None:
    nowhere = Commands(tmp_path, {"GPUYARD_SERVER_URL": "http://127.0.0.1:1", "GPUYARD_API_KEY": "gk-any"})
    done = nowhere.run("batch", "list", "--json")

    assert (done.code, done.out) == (5, "")
    assert len(done.err.splitlines()) == 1
    for word in ("http://127.0.0.1:1", "gpuyard up", "gpuyard doctor"):
        assert word in done.err


def test_the_version_is_told_without_a_server(tmp_path: Path) -> None:
    done = Commands(tmp_path).run("--version")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("gpuyard ")
    assert len(done.out.splitlines()) == 1


def test_without_a_server_the_two_settings_are_named(tmp_path: Path) -> None:
    done = Commands(tmp_path).run("batch", "list")

    assert done.code == 1
    assert "GPUYARD_SERVER_URL" in done.err


@pytest.mark.parametrize("body", [b"<html>gateway</html>", b"\xff"])
def test_what_is_no_answer_of_the_api_is_one_line(api: FakePublicApi, told: Commands, body: bytes) -> None:
    api.says("GET /v1/pools", Says(body, 502))
    done = told.run("pool", "list")

    assert (done.code, done.out, len(done.err.splitlines())) == (5, "", 1)


def test_a_proxy_that_sends_callers_on_is_named_with_the_place_and_the_key_does_not_go_along(
    api: FakePublicApi, told: Commands
) -> None:
    """As where http:// was set and a proxy wants https://; the page that says so has no body, or one of HTML."""
    moved = {"location": f"{api.url}/elsewhere"}
    api.says("GET /v1/pools", Says(b"", 301, moved), Says(b"<html>moved</html>", 301, moved))
    done = told.run("pool", "list")

    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert f"sends callers on to {api.url}/elsewhere" in done.err
    assert "GET /elsewhere" not in api.calls


def test_names_from_outside_cannot_write_to_the_terminal(api: FakePublicApi, told: Commands) -> None:
    evil = "\x1b]0;owned\x07\r\nmore[bold]x"
    api.says("GET /v1/batches/batch_b", Says(batch(metadata={"k": evil}, model=evil)))
    api.says("GET /v1/orgs", Says({"data": [{"id": "org_1", "operator": False, "name": evil}], "has_more": False}))

    for done in (told.run("batch", "show", "batch_b"), told.run("org", "list", COLUMNS="80")):
        assert done.code == 0
        assert not set("\x1b\x07\r") & set(done.out)
        assert "[bold]" in done.out.replace("\n", "").replace(" ", "")


def test_a_list_goes_over_as_many_pages_as_it_takes(api: FakePublicApi, told: Commands) -> None:
    pages = [[batch(id="b5"), batch(id="b4")], [batch(id="b3"), batch(id="b2")]]
    api.says("GET /v1/batches", *(Says({"data": page, "has_more": True}) for page in pages))
    found = told.run("batch", "list", "-n", "4", "--json").document

    assert [each["id"] for each in found] == ["b5", "b4", "b3", "b2"]
    assert api.calls == ["GET /v1/batches?limit=4", "GET /v1/batches?after=b4&limit=4"]


def test_a_narrow_terminal_gets_lines_instead_of_columns(api: FakePublicApi, told: Commands) -> None:
    listed = {"data": [batch(gpuyard={"waiting_reason": "no worker"})], "has_more": False}
    api.says("GET /v1/batches", Says(listed))
    done = told.run("batch", "list", COLUMNS="40")

    assert [line.split()[0] for line in done.out.splitlines()[:3]] == ["batch", "status", "rows"]
    assert "waits: no worker" in done.out


def test_a_reader_that_leaves_early_is_no_error(api: FakePublicApi, told: Commands) -> None:
    lines = b'{"custom_id": "x"}\n' * 100_000
    api.says("GET /v1/batches/batch_b", Says(batch(total=100_000)))
    api.says("GET /v1/batches/batch_b/results", Says(lines))
    done = told.shell(f"{' '.join(told.argv)} batch results batch_b | head -n 1")

    assert (done.out, done.err) == ('{"custom_id": "x"}\n', "")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.jsonl", None, "cannot read missing.jsonl: No such file"),
        ("empty.jsonl", b"", "is empty"),
        ("binary.jsonl", bytes(range(256)) * 50, "no row of a batch"),
        ("deep.jsonl", b"[" * 100_000, "no row of a batch"),
    ],
)
def test_what_is_no_input_is_not_sent(
    api: FakePublicApi, told: Commands, name: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (told.home / name).write_bytes(content)
    done = told.run("submit", name)

    assert (done.code, done.out) == (1, "")
    assert says in done.err
    assert api.calls == []


def test_a_large_file_is_never_whole_in_memory(api: FakePublicApi, told: Commands) -> None:
    size = 400 * 1024 * 1024
    with (told.home / "large.jsonl").open("wb") as file:
        file.write(rows(1))
        file.truncate(size)  # a sparse file: no disk is written
    api.says("POST /v1/files", Says({"id": "file-1"}))
    api.says("POST /v1/batches", Says(batch("validating")))
    peak = "import resource, sys; sys.stderr.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))"
    done = told.shell(f"{' '.join(told.argv)} submit large.jsonl && exec {sys.executable} -c '{peak}'")

    assert done.out == "batch_b\n"
    assert int(done.err) * 1024 < size / 2
    assert api.calls == ["POST /v1/files", "POST /v1/batches"]


def test_a_file_that_becomes_shorter_while_it_is_sent_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(rows(1000))
    with open_input(str(file)) as found:
        body = found.body()
        os.truncate(file, 0)
        with pytest.raises(CliError, match="became shorter"):
            list(iter(lambda: body.read(100_000), b""))


@pytest.mark.parametrize("output", ["nowhere/out.jsonl", "in.jsonl", "in.jsonl/out", "dangling", "loop", "n" * 300])
def test_a_place_that_results_cannot_go_to_is_refused_before_anything_is_sent(
    api: FakePublicApi, told: Commands, output: str
) -> None:
    (told.home / "in.jsonl").write_bytes(rows(1))
    (told.home / "dangling").symlink_to("no-such-folder/out.jsonl")
    (told.home / "loop").symlink_to("loop")
    done = told.run("submit", "in.jsonl", "-o", output)

    assert done.code == 2
    assert api.calls == []


def test_results_go_into_a_pipe_of_the_shell(api: FakePublicApi, told: Commands) -> None:
    """As `-o >(gzip > FILE)` names one: by a link to what has no name of its own."""
    lines = b'{"custom_id": "x"}\n' * 3
    api.says("GET /v1/batches/batch_b", Says(batch()))
    api.says("GET /v1/batches/batch_b/results", Says(lines))
    done = told.shell(f"{' '.join(told.argv)} batch results batch_b -o /dev/fd/3 3>&1 1>&2 | cat")

    assert (done.out.encode(), done.err) == (lines, "")


def test_a_name_of_letters_with_many_bytes_is_no_obstacle(api: FakePublicApi, told: Commands) -> None:
    name = "\N{CJK UNIFIED IDEOGRAPH-7D50}" * 84
    api.says("GET /v1/batches/batch_b", Says(batch(total=1)))
    api.says("GET /v1/batches/batch_b/results", Says(b'{"custom_id": "x"}\n'))
    done = told.run("batch", "results", "batch_b", "-o", name)

    assert done.code == 0, done.err
    assert (told.home / name).read_bytes() == b'{"custom_id": "x"}\n'


def test_results_whose_connection_breaks_are_fetched_again_and_appear_whole(api: FakePublicApi, told: Commands) -> None:
    lines = b"".join(b'{"custom_id": "%d"}\n' % number for number in range(3))
    api.says("GET /v1/batches/batch_b", Says(batch()))
    api.says("GET /v1/batches/batch_b/results", Says(lines[:25], declared=len(lines)), Says(lines))
    done = told.run("batch", "results", "batch_b", "-o", "out.jsonl")

    assert done.code == 0, done.err
    assert (told.home / "out.jsonl").read_bytes() == lines


def test_results_that_stay_short_leave_what_was_there(api: FakePublicApi, told: Commands) -> None:
    (told.home / "out.jsonl").write_text("before")
    api.says("GET /v1/batches/batch_b", Says(batch()))
    api.says("GET /v1/batches/batch_b/results", Says(b'{"custom_id": "1"}\n'))
    done = told.run("batch", "results", "batch_b", "-o", "out.jsonl")

    assert done.code == 5
    assert "1 of 3 results" in done.err
    assert {path.name for path in told.home.iterdir() if path.is_file()} == {"out.jsonl"}
    assert (told.home / "out.jsonl").read_text() == "before"


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxy_without_an_api_behind_it_is_told_in_words(api: FakePublicApi, told: Commands, status: int) -> None:
    page = b"<html>\r\n<head><title>Bad Gateway</title></head>\r\n</html>\r\n"
    api.says("GET /v1/workers", Says(page, status, {"content-type": "text/html"}))
    done = told.run("worker", "list")

    assert done.code == 5
    assert f"a proxy answers at {api.url}, and no API behind it (HTTP {status})" in done.err
    assert "<" not in done.err


def test_a_watch_outlives_a_server_that_is_away_for_a_moment(api: FakePublicApi, told: Commands) -> None:
    away = Says({"error": {"message": "starting", "code": "unavailable"}}, 503, {"retry-after": "1"})
    api.says(
        "GET /v1/batches/batch_b", Says(batch("in_progress", completed=1)), *[away] * 6, Says(batch(completed_at=61))
    )
    done = told.run("batch", "watch", "batch_b")

    assert done.code == 0, done.err
    assert "completed in 1m 00s: 3 rows, 3 answered" in done.err


def stream(*batches: object, **more: object) -> Says:
    """A stream of a batch, that ends with the last of `batches`."""
    text = ": hello\n\n" + "".join(f"event: batch\ndata: {json.dumps(each)}\n\n" for each in batches)
    return Says(text.encode(), headers={"content-type": "text/event-stream"}, **more)  # type: ignore[arg-type]


def test_a_watch_reads_the_stream_and_asks_again_only_when_it_breaks(api: FakePublicApi, told: Commands) -> None:
    api.says(
        "GET /v1/batches/batch_b", Says(batch("in_progress", completed=0)), Says(batch("nobody asks a second time"))
    )
    first = [batch("in_progress", completed=1)]
    cut = stream(*first, declared=10_000)  # the connection breaks
    api.says("GET /v1/batches/batch_b/events", cut, stream(*first, batch("in_progress", completed=2), batch()))
    done = told.run("batch", "watch", "batch_b", "--json")

    assert done.code == 0, done.err
    looks = [json.loads(line)["request_counts"]["completed"] for line in done.out.splitlines()]
    assert looks == [0, 1, 2, 3]
    assert api.calls == ["GET /v1/batches/batch_b", *["GET /v1/batches/batch_b/events?show=batch"] * 2]


def test_a_watch_asks_where_there_are_no_streams(api: FakePublicApi, told: Commands) -> None:
    full = Says({"error": {"message": "too many", "code": "too_many_streams"}}, 503)
    api.says("GET /v1/batches/batch_b", Says(batch("in_progress", completed=1)), Says(batch()))
    api.says("GET /v1/batches/batch_b/events", full)
    done = told.run("batch", "watch", "batch_b")

    assert done.code == 0, done.err
    assert [call.partition("?")[0] for call in api.calls].count("GET /v1/batches/batch_b") == 2


def test_watching_as_json_prints_the_batch_at_each_change_and_its_end_last(api: FakePublicApi, told: Commands) -> None:
    runs = Says(batch("in_progress", completed=1))
    api.says("GET /v1/batches/batch_b", Says(batch("in_progress", completed=0)), runs, runs, Says(batch()))
    done = told.run("batch", "watch", "batch_b", "--json")

    looks = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert [look["request_counts"]["completed"] for look in looks] == [0, 1, 3]


def test_on_a_terminal_a_bar_moves_and_only_the_end_stays(api: FakePublicApi, told: Commands) -> None:
    api.says("GET /v1/batches/batch_b", Says(batch("in_progress", completed=1)), Says(batch()))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*told.argv, "batch", "watch", "batch_b"],
        env=told.environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)

    assert process.wait(timeout=30) == 0
    assert "1/3" in shown.decode()
    _, _, after_the_bar = shown.decode().rpartition("rows\r\n")
    assert after_the_bar.count("\x1b[1A\x1b[2K") == 2, "the bar and its words are taken away"
    assert "3 rows, 3 answered" in after_the_bar


def test_a_watch_says_that_the_server_is_away_and_goes_on(api: FakePublicApi, told: Commands) -> None:
    runs = Says(batch("in_progress", completed=1))
    away = Says(b"", 502)
    api.says("GET /v1/batches/batch_b", runs, *[away] * 8, runs, Says(batch()))
    done = told.run("batch", "watch", "batch_b")

    assert done.code == 0, done.err
    said = done.err.splitlines()
    assert [line.partition(" · ")[0] for line in said[:3]] == [
        "in_progress",
        "the server does not answer, and is asked again",
        "in_progress",
    ]


def test_help_says_the_exit_codes(told: Commands) -> None:
    for command in (("submit",), ("batch", "watch")):
        text = " ".join(told.run(*command, "--help", COLUMNS="100").out.split())
        assert "3 the batch ended failed, expired or" in text


def test_json_is_ascii_whatever_the_locale(api: FakePublicApi, told: Commands) -> None:
    api.says("GET /v1/batches/batch_b", Says(batch(metadata={"名": "\u2028"})))
    done = told.run("batch", "show", "batch_b", "--json", LC_ALL="POSIX", PYTHONIOENCODING="ascii")

    assert done.out.isascii()
    assert json.loads(done.out)["metadata"] == {"名": "\u2028"}
