"""A runtime that does not take some parameters."""

from app.domain.rows import Reply, Row
from executors.cancellation import CancelToken
from tests.fakes.steered_executor import SteeredExecutor
from tests.worker.units import ENDPOINT


class Refusing(SteeredExecutor):
    """Takes every parameter but some, lets every row end, and keeps the bodies it was given."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = frozenset(refused)
        self.bodies: list[bytes] = []
        self.let_all()

    def unsupported(self, endpoint: str) -> frozenset[str]:
        return self.refused if endpoint == ENDPOINT else frozenset()

    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
        self.bodies.append(row.body)
        return super().execute(row, timeout=timeout, cancelled=cancelled)
