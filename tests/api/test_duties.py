"""What an API process does beside answering survives what goes wrong with it."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from fastapi import FastAPI

from app.api import main
from app.api.duties import Duties
from app.db.presence import the_tick
from app.db.store import Store
from app.sweeps.election import SWEEPS
from tests.yards import created, events, new_yard, set_rungs

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


def test_it_says_that_it_hears_as_often_as_those_beat_who_beat_most_often(
    store: Store, tmp_path: Path, until: Callable[..., None]
) -> None:
    """The service's own ten seconds would be an absence each time, for a grace of three."""
    yard = new_yard(store, tmp_path / "blobs")
    set_rungs(yard, renew_seconds=1.0, grace_seconds=3.0, toleration_seconds=10.0)
    own = Duties(yard, periods=dict.fromkeys(SWEEPS, 60.0), stand_in_seconds=600.0, runner="api")
    seen: set[datetime] = set()

    def ticked() -> int:
        with store.read() as session:
            tick = the_tick(session)
        seen.update([tick.at] if tick else [])
        return len(seen)

    own.start()
    try:
        until(lambda: ticked() > 3, seconds=8)
    finally:
        own.stop()
    assert events(yard, "api") == []


def test_keys_that_were_used_while_the_database_is_away_are_a_line_and_no_trace(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = FastAPI()
    app.state.yard = replace(new_yard(store, tmp_path / "blobs"), store=Store(f"sqlite:///{tmp_path}"))
    app.state.used_tokens = {"tok_1"}
    asyncio.run(main._note_used_tokens_now(app))
    (said,) = caplog.records
    assert "last use was not stored: the database file cannot be used" in said.getMessage()
    assert said.exc_info is None
