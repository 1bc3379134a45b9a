"""A connection to the broker that is lost, with a message on its way or not, must not end its worker."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from app.celery_consumer import SturdyConsumer
from config import celeryconfig


class Lost:
    """A kombu connection after its broker died."""

    connection_errors = channel_errors = (OSError,)

    def collect(self, **_: Any) -> None:
        raise ConnectionRefusedError

    def close(self) -> None:
        raise ConnectionRefusedError


class LostWithAMessage(Lost):
    """Closing it asks for what is gone."""

    def close(self) -> None:
        raise AttributeError("'NoneType' object has no attribute 'hostname'")


def consumer_of(connection: Lost) -> SturdyConsumer:
    consumer = SturdyConsumer.__new__(SturdyConsumer)
    consumer.connection = connection
    consumer.app = SimpleNamespace(conf=celeryconfig)
    return consumer


def test_closing_it_ends_nothing() -> None:
    consumer = consumer_of(LostWithAMessage())
    consumer.on_connection_error_after_connected(ConnectionRefusedError())
    assert consumer.connection is None


def test_losing_it_writes_nothing_of_what_celery_may_do_one_day(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        consumer_of(Lost()).on_connection_error_after_connected(ConnectionRefusedError())
    assert warned == []
    assert [record.getMessage() for record in caplog.records if record.name == "app.celery_consumer"] == []
