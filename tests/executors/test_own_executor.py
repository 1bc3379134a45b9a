"""A third party's executor is held to the same promises, by the same tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RIG = """
from contextlib import contextmanager

from executors.fakes import FakeExecutor
from executors.settings import ExecutorSettings
from tests.executors.rigs import Rig
from tests.executors.running import chat_row


class AcmeExecutor(FakeExecutor):
    kind = "acme"

    def execute(self, row, *, timeout, cancelled):
        reply = super().execute(row, timeout=timeout, cancelled=cancelled)
        return {answer}


@contextmanager
def rig():
    settings = ExecutorSettings()
    slow = AcmeExecutor(settings, "fake:?hang_every=1")
    row = lambda: chat_row(model="fake")
    yield Rig(AcmeExecutor(settings), quick=row, slow=row, slow_executor=slow)
"""


@pytest.mark.parametrize(("answer", "outcome"), [("reply", r"^[^F]*7 passed"), ("None", r"[1-9] failed")])
def test_the_conformance_tests_take_any_class(tmp_path: Path, answer: str, outcome: str) -> None:
    (tmp_path / "acme_rig.py").write_text(RIG.format(answer=answer))
    environment = os.environ | {
        "CONFORMANCE_RIG": "acme_rig:rig",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/executors/test_conformance.py"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert re.search(outcome, ended.stdout), ended.stdout + ended.stderr
