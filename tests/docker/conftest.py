"""Tests of this room need a Docker engine and take minutes: `make test-docker`. They are left out unless asked for."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_docker_tools.wrappers.container
from filelock import FileLock

from tests.docker.stack import Stack, run

HERE = Path(__file__).parent
SECONDS = 900


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here; the first test that wants an image waits until all of them are built."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def compose() -> None:
    """The command, which needs no engine to read the stack's file."""
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"there is no Compose (make test-docker gets one): {done.stderr}"


@pytest.fixture(scope="session")
def stack(compose: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack under a name and with an .env of its own; nothing of it runs yet. In the end all of it is removed."""
    found = Stack(tmp_path_factory.mktemp("stack"), name=f"gpuyard-test-{os.getpid()}")
    yield found
    found.close()
    found.remove()


@pytest.fixture(scope="session")
def images(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Build every image that is ours, the worker without a model included: at once, for Compose would go one by one.

    Of several test processes one builds, and the others then find all of it done.
    """
    run(["docker", "version"])
    with FileLock(tmp_path_factory.getbasetemp().parent / "images.lock"), ThreadPoolExecutor() as threads:
        list(threads.map(stack.build, ("migrate", "worker", "worker-gpu")))
    return stack


@pytest.fixture(scope="session", autouse=True)
def _published_ports() -> Iterator[None]:
    """Ports of containers are looked for where they are published, though this may be a container, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest_docker_tools.wrappers.container, "tests_inside_container", lambda: False)
        yield
