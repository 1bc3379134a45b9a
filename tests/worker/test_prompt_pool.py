"""A batch's lanes: as many as there are permits, and none once the batch is over."""

from collections.abc import Callable

from app.worker.lane import Rest
from app.worker.permits import Permits
from app.worker.prompt_pool import PromptPool
from app.worker.units import Run
from tests.fakes.steered_executor import SteeredExecutor
from tests.worker.units import queue_of


class Nothing:
    def start(self, run: Run, ended: Callable[[Run, Rest | None], None]) -> bool:  # noqa: ARG002 - there are no rows
        return False

    def run(self, run: Run, rest: Rest | None = None) -> None: ...


def test_a_pool_that_has_closed_takes_no_lane_and_no_offence() -> None:
    """Whoever resizes all shares may meet one that is just ending, and has other things to do afterwards."""
    permits = Permits(1)
    pool = PromptPool((0, "batch_1"), permits, queue_of(SteeredExecutor()), Nothing())
    pool.fit()
    pool.close()
    permits.set_limit(2)
    pool.fit()
