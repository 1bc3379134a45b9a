"""A connection to the broker that is lost with a message on its way must not end its worker."""

from types import SimpleNamespace

import pytest

from app.celery_consumer import SturdyConsumer


class Lost:
    """A kombu connection after its broker died: closing it asks for what is gone."""

    def collect(self) -> None:
        raise ConnectionRefusedError

    def close(self) -> None:
        raise AttributeError("'NoneType' object has no attribute 'hostname'")


@pytest.mark.filterwarnings("ignore")
def test_closing_it_ends_nothing() -> None:
    consumer = SturdyConsumer.__new__(SturdyConsumer)
    consumer.connection = Lost()
    conf = SimpleNamespace(
        worker_cancel_long_running_tasks_on_connection_loss=False, worker_enable_prefetch_count_reduction=False
    )
    consumer.app = SimpleNamespace(conf=conf)
    consumer.on_connection_error_after_connected(ConnectionRefusedError())
    assert consumer.connection is None
