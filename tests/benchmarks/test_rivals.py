"""What a rival is said to use: what its rows cost, and nothing of its start."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import inputs, rivals_run
from benchmarks.engine_process import Engine
from benchmarks.rivals_run import Rival, run_rival

START_SECONDS = 0.25
SLOW_TO_START = f"""
import json, time, urllib.request
while time.process_time() < {START_SECONDS}:
    pass
from given import answer_line, read_arguments, rows

given = read_arguments()
with given.output.open("w") as output:
    for row in rows(given.input):
        asked = urllib.request.Request(given.url + row["url"], json.dumps(row["body"]).encode())
        output.write(answer_line(row["custom_id"], json.load(urllib.request.urlopen(asked))))
"""


def test_its_start_is_taken_off_from_all_that_is_told_of_it(
    start: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "run.py").write_text(SLOW_TO_START)
    (tmp_path / "given.py").write_bytes((rivals_run.RIVALS / "given.py").read_bytes())
    monkeypatch.setattr(rivals_run, "RIVALS", tmp_path)
    monkeypatch.setattr(rivals_run, "rival_python", lambda _name: Path(sys.executable))
    monkeypatch.setattr(inputs, "INPUTS", tmp_path / "inputs")
    run = run_rival(Rival("slow to start", "slow", ordered=True), start(4, 1), 100)
    assert run.requests == run.rows == 100
    assert 0 < run.cpu_seconds["client"] == run.cpu_seconds["everything"] < START_SECONDS
