"""What a batch's file has wrong with it is all named at once, in a bounded number of entries (INPUTS 4)."""

import gzip
import io
import zipfile
from collections.abc import Callable

import pytest

from app.domain.inputs import validate
from tests.domain.test_inputs import CHAT, check, found, row, rows


def zipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("in.jsonl", data)
    return made.getvalue()


def test_a_row_that_lacks_several_fields_has_an_entry_for_each() -> None:
    assert found(check(b'{"body":"str"}')) == [
        ("missing_required_parameter", "custom_id", 1),
        ("missing_required_parameter", "method", 1),
        ("missing_required_parameter", "url", 1),
        ("invalid_request", "body", 1),
    ]
    assert found(check(row("", "/x", "GET", model=""))) == [
        ("invalid_request", "custom_id", 1),
        ("invalid_request", "method", 1),
        ("url_mismatch", "url", 1),
        ("invalid_request", "body.model", 1),
    ]


def test_duplicates_in_great_number_are_counted_and_the_first_are_named() -> None:
    lines = rows(3000)
    report = check(b"\n".join(lines + lines + lines))
    assert report.error_count == 6000
    assert len(report.errors) == 100
    assert all((error.line or 0) > 3000 for error in report.errors)
    assert all("was already used in line" in error.message for error in report.errors[:-1])
    assert report.errors[-1].message.startswith("And 5901 more like these, in lines ")


def test_too_many_rows_are_told_first_however_many_lines_are_bad() -> None:
    report = check(b"\n".join([b"{"] * 200), max_rows=150)
    assert found(report) == [("too_many_tasks", None, 151), ("invalid_json_line", None, 1)]
    assert report.error_count == 151


def test_all_bad_lines_are_reported() -> None:
    lines = [b"{bad" if number % 10 < 3 else row(f"r{number}") for number in range(100)]
    assert len(found(check(b"\n".join(lines)))) == 30


def test_a_hundred_equal_errors_have_an_entry_each_and_more_share_one() -> None:
    assert [error.line for error in check(b"\n".join([b"{"] * 100)).errors] == list(range(1, 101))
    report = check(b"\n".join([b"{"] * 3000))
    assert report.error_count == 3000
    (error,) = report.errors
    assert (error.code, error.line) == ("invalid_json_line", 1)
    assert error.message.endswith(" (3000 times: lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and others)")


def test_however_many_lines_have_one_fault_every_other_fault_is_named() -> None:
    """Numbers of that kind: each message another one."""
    many = [row(f"r{number}", url=f"/v{number}") for number in range(2000)]
    report = check(b"\n".join([*many, b"{", row("x", method="GET"), row("y", method="PUT"), row("z", method="GET")]))
    assert report.error_count == 2004
    assert len(report.errors) <= 100
    assert [(error.param, error.line) for error in report.errors if error.param != "url"] == [
        (None, 2001),
        ("method", 2002),
        ("method", 2003),
    ]
    assert report.errors[-2].message == '\'method\' must be "POST", not "GET". (2 times: lines 2002, 2004)'
    urls = [error for error in report.errors if error.param == "url"]
    assert urls[-1].message.startswith(f"And {2000 - len(urls) + 1} more like these, in lines {len(urls)}, ")


def test_every_bad_line_is_one_entry_in_order_of_lines() -> None:
    lines = [row("a"), b"{", row("a"), row("b", url="/x"), row(None)]
    assert [line for _, _, line in found(check(b"\n".join(lines)))] == [2, 3, 4, 5]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_a_file_in_another_encoding_is_named_as_that_once(encoding: str) -> None:
    report = check(b"\n".join(rows(300)).decode().encode(encoding))
    assert found(report) == [("invalid_json_line", None, None)]
    assert report.error_count == 1
    name = encoding[:6].upper()
    assert report.errors[0].message == (
        f"The file is {name} text. A batch's input is JSON Lines in UTF-8: convert it and upload it again."
    )


def test_a_file_in_another_encoding_is_known_by_however_small_chunks() -> None:
    data = row().decode().encode("utf-16")
    report = validate(lambda: [data[at : at + 1] for at in range(len(data))], endpoint=CHAT)
    assert found(report) == [("invalid_json_line", None, None)]


@pytest.mark.parametrize("pack", [gzip.compress, zipped])
def test_a_compressed_file_is_named_as_that(pack: Callable[[bytes], bytes]) -> None:
    (error,) = check(pack(row())).errors
    assert "The file is compressed" in error.message
