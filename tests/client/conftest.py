from collections.abc import Iterator

import pytest

from app.client.control_plane import ControlPlane
from tests.fakes.control_plane import FakeControlPlane


@pytest.fixture
def plane() -> Iterator[FakeControlPlane]:
    with FakeControlPlane() as found:
        yield found


@pytest.fixture
def client(plane: FakeControlPlane) -> Iterator[ControlPlane]:
    found = ControlPlane(plane.url, "gk-test", boot_id="boot_1")
    yield found
    found.close()
