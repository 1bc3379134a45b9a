"""From settings to a yard: every number that an operator may set is the one that the service goes by."""

from dataclasses import fields
from pathlib import Path

from app.services.opening import open_yard
from config.settings import ServerSettings


def test_each_of_the_yards_numbers_is_a_settings(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path, stop_grace_seconds=7, shard_rows=5, max_losses=2, kill_after_seconds=3)
    yard = open_yard(settings)
    try:
        for part in (yard.timing, yard.limits):
            numbers = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "org"}
            assert numbers == {name: getattr(settings, name) for name in numbers}
        of_org = {f"org_{field.name}": getattr(yard.limits.org, field.name) for field in fields(yard.limits.org)}
        assert of_org == {name: getattr(settings, name) for name in of_org}
    finally:
        yard.store.close()
