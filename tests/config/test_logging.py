import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from config.logging import LINE_CHARACTERS, configure, redact


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("created gk-abcDEF123_-xyz for alice", "abcDEF123"),
        ("redis://user:pa55@broker:6379/0 went away", "pa55"),
        ("redis://:pa55@broker:6379/0 went away", "pa55"),
        ("postgresql+psycopg://gpuyard:pa55@db/gpuyard", "pa55"),
        ("{'Authorization': 'Bearer sk-runtime-key'}", "sk-runtime-key"),
        ("redis://broker/0?db=1&password=pa55 went away", "pa55"),
        ("signed with whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8"),
    ],
)
def test_a_secret_never_stands_in_a_line(line: str, secret: str) -> None:
    assert secret not in redact(line)
    assert "***" in redact(line)


def test_a_line_without_secrets_stays_as_it_is() -> None:
    line = "GET http://127.0.0.1:8765/v1/batches?limit=2 gk-… batch_1@host"

    assert redact(line) == line


def test_a_secret_in_a_traceback_of_a_library_is_redacted_too(tmp_path: Path) -> None:
    configure("worker", as_json=True, file=tmp_path / "log")
    logging.getLogger("redis").error("no broker", exc_info=ConnectionError("redis://u:pa55@broker refused gk-abcdefgh"))

    (line,) = (tmp_path / "log").read_text().splitlines()
    assert "pa55" not in line
    assert "abcdefgh" not in line
    assert "ConnectionError" in json.loads(line)["exception"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_local_variable(tmp_path: Path, as_json: bool) -> None:
    configure("worker", as_json=as_json, file=tmp_path / "log")

    def handle(row: str) -> None:
        _local = row.upper()
        raise KeyError("missing")

    try:
        handle("a user's row")
    except KeyError:
        structlog.get_logger("ours").exception("failed")

    text = (tmp_path / "log").read_text()
    assert "KeyError" in text
    assert "USER'S ROW" not in text


def test_a_line_has_a_bound_and_no_secret_at_its_edge(tmp_path: Path) -> None:
    configure("worker", as_json=True, file=tmp_path / "log")
    url = "redis://user:pa55word@broker"
    logging.getLogger("celery").error("%s%s%s", "x" * (LINE_CHARACTERS - 40), url, "y" * 20_000_000)

    text = (tmp_path / "log").read_text()
    assert len(text) < LINE_CHARACTERS + 100
    assert "pa55" not in text
    assert "(200" in text


def test_every_line_has_one_shape_and_carries_what_is_bound(tmp_path: Path) -> None:
    configure("control", as_json=True, file=tmp_path / "log")
    structlog.contextvars.bind_contextvars(job_id="job_1", lease_id=7)
    structlog.get_logger("ours").info("leased", rows=3)
    logging.getLogger("theirs").warning("connected to %s", "broker")

    ours, theirs = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (ours["event"], ours["rows"], theirs["event"]) == ("leased", 3, "connected to broker")
    for line in (ours, theirs):
        assert (line["process"], line["job_id"], line["lease_id"]) == ("control", "job_1", 7)
        assert line["at"].endswith("Z")


def test_a_second_configuration_replaces_the_first(tmp_path: Path) -> None:
    configure("api", file=tmp_path / "first")
    configure("api", file=tmp_path / "second")
    logging.getLogger("x").warning("once")

    assert "once" not in (tmp_path / "first").read_text()
    assert (tmp_path / "second").read_text().count("once") == 1
