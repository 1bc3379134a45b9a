"""Everything in any order: hypothesis drives the use cases, and the invariants hold after every step.

OPENAI_CONTRACT 1.6, PROTOCOL 1 to 5. GPUYARD_TEST_RACES is the number of runs (and what fails is then made small).
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from app.db.store import Store
from app.services.context import Yard
from tests.databases import Databases
from tests.migrated import migrate
from tests.races import Races
from tests.yards import new_yard

RUNS = int(os.environ.get("GPUYARD_TEST_RACES", "0"))
STEPS = 15


@pytest.mark.timeout(240 + RUNS * 10)
def test_any_order_of_calls_keeps_every_promise(databases: Databases, tmp_path: Path) -> None:
    made = 0

    def make_yard() -> Yard:
        nonlocal made
        made += 1
        return new_yard(Store(databases.copy_of(migrate)), tmp_path / f"blobs-{made}", max_losses=3, max_attempts=2)

    def close(yard: Yard) -> None:
        yard.store.close()

    run_state_machine_as_test(
        lambda: Races(make_yard, close),
        settings=settings(
            max_examples=RUNS or (6 if databases.kind == "sqlite" else 2),
            stateful_step_count=STEPS,
            derandomize=not RUNS,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink] if RUNS else [Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
