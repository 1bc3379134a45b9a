import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app.local import locks


def test_a_live_installation_is_an_error_at_once(tmp_path: Path) -> None:
    with (
        locks.claim(tmp_path),
        pytest.raises(locks.FolderTaken, match=f"another gpuyard up .pid {os.getpid()}. runs on"),
    ):
        locks.claim(tmp_path).__enter__()


def test_a_process_that_inherited_the_claim_holds_it_after_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEFTOVERS_SECONDS", 0.1)
    with locks.claim(tmp_path) as claim:
        leftover = subprocess.Popen(["sleep", "60"], pass_fds=(claim,))
    try:
        with pytest.raises(locks.FolderTaken, match="earlier gpuyard up"):
            locks.claim(tmp_path).__enter__()
    finally:
        leftover.send_signal(signal.SIGKILL)
        leftover.wait()

    with locks.claim(tmp_path):
        pass


def test_the_next_one_waits_for_what_a_killed_one_left(tmp_path: Path, until: Callable[..., None]) -> None:
    with locks.claim(tmp_path) as claim:
        leftover = subprocess.Popen(["sleep", "0.5"], pass_fds=(claim,))

    with locks.claim(tmp_path):
        assert leftover.wait(timeout=1) == 0
