"""A target is missed when it is missed, and the page holds what was measured."""

from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.inputs import WrongAnswers, check_output
from benchmarks.report import BEGIN, END, Report, write_page
from benchmarks.runs import Run
from benchmarks.targets import Finding

OURS = Run("gpuyard", 1000, 1280, 0.8, 0.9, {"worker": 0.2, "everything": 0.4}, {"worker": 80}, 1000, 8)
THEIRS = Run("aiohttp", 1000, 1280, 0.8, 0.8, {"client": 0.3, "everything": 0.4}, {"client": 40}, 1000, 8)


def test_bounds_hold_from_above_and_from_below() -> None:
    assert Finding("P1.64", 0.96).verdict(loose=False)
    assert Finding("P1.64", 0.95).verdict(loose=False) is False
    assert Finding("P3.aiohttp", 1.0).verdict(loose=False)
    assert Finding("P3.aiohttp", 1.1).verdict(loose=False) is False
    assert Finding("P3.aiohttp", 1.1).verdict(loose=True)
    assert Finding("P3.openai", 9).verdict(loose=True) is None


def test_the_page_is_written_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    measured = Report("standard", loose=False, runs={"gpuyard": [OURS], "aiohttp": [THEIRS]})
    measured.add([Finding("P1.64", 0.5, (0.4, 0.5))])
    write_page(measured.save())
    written = page.read_text()
    assert written.startswith(f"before\n{BEGIN}\nPlan `standard`")
    assert written.endswith(f"{END}\nafter\n")
    assert "0.500 **below**" in written
    assert "| gpuyard | 1111 | 0.868 | 0.977 | 200 | 400 | 80 |" in written
    assert "gpuyard" in (tmp_path / "figures" / "share.svg").read_text()
    assert [finding.key for finding in measured.missed] == ["P1.64"]


def line(number: int, mark: int) -> bytes:
    return b'{"custom_id": "row-%d", "response": {"body": {"choices": [{"message": {"content": "[[row-%d]]x"}}]}}}' % (
        number,
        mark,
    )


@pytest.mark.parametrize(
    ("lines", "ordered"),
    [
        ([line(0, 0)], False),
        ([line(0, 0), line(1, 0)], False),
        ([line(0, 0), line(0, 0)], False),
        ([line(1, 1), line(0, 0)], True),
    ],
)
def test_a_wrong_output_is_no_figure(lines: list[bytes], ordered: bool) -> None:
    with pytest.raises(WrongAnswers):
        check_output(lines, 2, ordered=ordered)


def test_a_right_output_may_be_out_of_order_where_none_was_promised() -> None:
    check_output([line(1, 1), line(0, 0)], 2, ordered=False)
