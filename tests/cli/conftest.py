"""One installation a module, and waiting with a bound."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.installation import Installation


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("installation"))
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition, at most so long."""

    def wait(condition: Callable[[], object], *, seconds: float = 15) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come true"
            time.sleep(0.05)

    return wait
