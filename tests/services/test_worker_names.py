"""A worker's name: its user's, else that of a single-worker token, else its machine's (TK-02)."""

from dataclasses import replace

import pytest

from app.domain.errors import Forbidden
from app.services.context import Yard
from tests.yards import Machine


@pytest.fixture
def alone(yard: Yard) -> Machine:
    """A machine whose key is for the worker `rack-7` alone."""
    anyone = Machine(yard, "box-1")
    anyone.caller = replace(anyone.caller, name="rack-7", single_worker=True)
    return anyone


def test_a_worker_that_nobody_named_takes_the_name_of_its_single_worker_token(alone: Machine) -> None:
    assert alone.hello(named=False).name == "rack-7"


def test_a_name_that_is_not_its_single_worker_tokens_is_refused(alone: Machine) -> None:
    with pytest.raises(Forbidden, match="rack-7"):
        alone.hello(named=True)
