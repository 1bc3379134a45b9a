"""Files, as the stock SDK uses them (OPENAI_CONTRACT 1.8, 1.9, 1.12)."""

import hashlib
import io
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.served import Served, rows

HARD_NAMES = ["a b.jsonl", 'quo"te.jsonl', "semi;colon=.jsonl", "日本語.jsonl", "back\\slash.jsonl", "é\u2028.jsonl"]


@pytest.fixture
def client(served: Served) -> OpenAI:
    return served.client()


def test_t1_a_file_arrives_whole_whatever_it_is_given_as(client: OpenAI, tmp_path: Path) -> None:
    data = rows(3)
    path = tmp_path / "input.jsonl"
    path.write_bytes(data)
    with path.open("rb") as opened:
        given: list[tuple[Any, str]] = [
            (path, "input.jsonl"),
            (opened, "input.jsonl"),
            (data, "upload"),
            (io.BytesIO(data), "upload"),
            (("named.jsonl", data), "named.jsonl"),
        ]
        for file, name in given:
            made = client.files.create(file=file, purpose="batch")
            assert (made.filename, made.bytes, made.object, made.purpose) == (name, len(data), "file", "batch")
            assert client.files.content(made.id).content == data
            assert client.files.retrieve(made.id) == made


@pytest.mark.parametrize("name", HARD_NAMES)
def test_t1_a_file_keeps_its_name(served_on_sqlite: Served, name: str) -> None:
    client = served_on_sqlite.client()
    made = client.files.create(file=(name, b"{}\n"), purpose="batch")
    assert client.files.retrieve(made.id).filename == name
    assert client.files.content(made.id).content == b"{}\n"


@pytest.mark.parametrize(
    ("name", "kept"), [("data/2026/in.jsonl", "in.jsonl"), ("/in.jsonl", "in.jsonl"), ("../..", ".."), ("a/", "upload")]
)
def test_t1_a_name_with_slashes_keeps_its_last_part(served_on_sqlite: Served, name: str, kept: str) -> None:
    made = served_on_sqlite.client().files.create(file=(name, b"{}\n"), purpose="batch")
    assert made.filename == kept


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"not json", b"x" * 3_000_000, b"\r\n--boundary\r\n" * 9999])
def test_t1_any_bytes_are_taken_at_upload(served_on_sqlite: Served, data: bytes) -> None:
    client = served_on_sqlite.client()
    made = client.files.create(file=data, purpose="batch")
    assert client.files.content(made.id).content == data


@pytest.mark.parametrize(("seconds", "taken"), [(3599, False), (3600, True), (2_592_000, True), (2_592_001, False)])
def test_t2_an_expiry_is_an_hour_to_thirty_days(served_on_sqlite: Served, seconds: int, taken: bool) -> None:
    def upload() -> Any:
        expires: Any = {"anchor": "created_at", "seconds": seconds}
        return served_on_sqlite.client().files.create(file=b"{}", purpose="user_data", expires_after=expires)

    if taken:
        made = upload()
        assert made.expires_at == made.created_at + seconds
    else:
        with pytest.raises(openai.BadRequestError) as refused:
            upload()
        assert refused.value.param == "expires_after[seconds]"


def test_t2_only_files_of_batches_expire_by_default(client: OpenAI) -> None:
    batch = client.files.create(file=b"{}", purpose="batch")
    assert batch.expires_at == batch.created_at + 2_592_000
    assert client.files.create(file=b"{}", purpose="evals").expires_at is None


def test_t2_an_expired_file_is_gone(served: Served) -> None:
    client = served.client()
    expires: Any = {"anchor": "created_at", "seconds": 3600}
    made = client.files.create(file=b"{}", purpose="batch", expires_after=expires)
    served.shift(seconds=3601)
    with pytest.raises(openai.NotFoundError) as gone:
        client.files.content(made.id)
    assert gone.value.code == "file_not_found"
    assert client.files.list().data == []


def test_t3_nobody_waits_for_processing(client: OpenAI) -> None:
    made = client.files.create(file=b"{}", purpose="batch")
    began = time.monotonic()
    assert client.files.wait_for_processing(made.id).status == "processed"
    assert time.monotonic() - began < 2


def test_t10_a_list_gives_every_file_once_and_ends(client: OpenAI) -> None:
    made = [client.files.create(file=b"{}", purpose="batch" if n % 2 else "evals").id for n in range(7)]
    assert [file.id for file in client.files.list(limit=3)] == made[::-1]
    assert [file.id for file in client.files.list(limit=3, order="asc")] == made
    assert [file.id for file in client.files.list(limit=2, purpose="evals", order="asc")] == made[::2]


def test_t10_a_loop_that_deletes_what_it_lists_meets_every_file(client: OpenAI) -> None:
    made = {client.files.create(file=b"{}", purpose="batch").id for _ in range(5)}
    met = set()
    for file in client.files.list(limit=2):
        met.add(file.id)
        deleted = client.files.delete(file.id)
        assert (deleted.id, deleted.deleted, deleted.object) == (file.id, True, "file")
    assert met == made
    assert client.files.list().data == []


@pytest.mark.parametrize(("limit", "code"), [(0, "integer_below_min_value"), (10_001, "integer_above_max_value")])
def test_t10_a_limit_out_of_bounds_is_refused(served_on_sqlite: Served, limit: int, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        served_on_sqlite.client().files.list(limit=limit)
    assert (refused.value.param, refused.value.code) == ("limit", code)


def test_t10_the_largest_limit_of_files_is_taken(served_on_sqlite: Served) -> None:
    assert served_on_sqlite.client().files.list(limit=10_000).object == "list"


def test_t15_content_is_the_same_twice_and_a_range_is_its_slice(served: Served) -> None:
    data = rows(50)
    made = served.client().files.create(file=data, purpose="batch")
    assert served.client().files.content(made.id).content == served.client().files.content(made.id).content == data
    path = f"/v1/files/{made.id}/content"
    with served.http() as http:
        whole = http.get(path)
        assert whole.headers["content-length"] == str(len(data))
        assert whole.headers["accept-ranges"] == "bytes"
        assert whole.headers["content-encoding"] == "identity"
        etag = whole.headers["etag"]
        assert etag == f'"{hashlib.sha256(data).hexdigest()}"'
        for header, expected in [
            ("bytes=10-", data[10:]),
            ("bytes=0-0", data[:1]),
            ("bytes=5-9", data[5:10]),
            ("bytes=-7", data[-7:]),
            ("bytes=5-99999999", data[5:]),
        ]:
            part = http.get(path, headers={"range": header})
            assert (part.status_code, part.content) == (206, expected)
            assert part.headers["content-range"].endswith(f"/{len(data)}")
            assert part.headers["etag"] == etag
        assert http.get(path, headers={"range": "bytes=10-", "if-range": etag}).status_code == 206
        assert http.get(path, headers={"range": "bytes=10-", "if-range": '"other"'}).status_code == 200
        beyond = http.get(path, headers={"range": f"bytes={len(data)}-"})
        assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(data)}")
        assert http.get(path, headers={"range": "bytes=1-2,5-6"}).content == data
        for tags in (etag, "*", f'"other", {etag}'):
            assert http.get(path, headers={"if-none-match": tags}).status_code == 304
        head = http.head(path)
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(data)), b"")


def test_t19_a_deleted_file_is_gone_at_once(client: OpenAI) -> None:
    made = client.files.create(file=b"{}", purpose="batch")
    client.files.delete(made.id)
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError) as gone:
            call(made.id)
        assert gone.value.code == "file_not_found"


def test_t20_another_orgs_file_is_not_there(served: Served) -> None:
    made = served.client().files.create(file=b"{}", purpose="batch")
    stranger = served.client(served.key("submit", org="other"))
    for call in (stranger.files.retrieve, stranger.files.content, stranger.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    assert stranger.files.list().data == []
    assert served.client(served.key("read")).files.retrieve(made.id) == made
