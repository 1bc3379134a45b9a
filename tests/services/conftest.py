"""Tests of use cases: each on SQLite and on PostgreSQL, through the services, with the database's own clock."""

from pathlib import Path

import pytest

from app.db.store import Store
from app.services.context import Yard
from tests.yards import new_yard


@pytest.fixture
def yard(store: Store, tmp_path: Path) -> Yard:
    """A yard with one org and one pool; shards have four rows."""
    return new_yard(store, tmp_path / "blobs")
