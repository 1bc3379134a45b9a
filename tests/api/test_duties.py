"""What an API process does beside answering survives what goes wrong with it."""

import logging
import sys
import time
from pathlib import Path

import pytest

from app.api.duties import Duties
from app.db.store import Store
from app.sweeps.election import SWEEPS
from tests.yards import created, new_yard

LONG = 10.0


def test_a_stand_in_that_cannot_be_started_is_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    yard = new_yard(store, tmp_path / "blobs")
    created(yard)
    own = Duties(yard, periods=dict.fromkeys(SWEEPS, 60.0), stand_in_seconds=0.1, runner="api")
    with caplog.at_level(logging.WARNING, "app.api.duties"):
        own.start()
        try:
            until = time.monotonic() + LONG
            while caplog.text.count("cannot stand in") < 2:
                assert time.monotonic() < until, caplog.text
                time.sleep(0.02)
        finally:
            own.stop()
