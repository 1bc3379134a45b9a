"""`gpuyard config show`: every value as it is, where it came from, and no secret."""

from pathlib import Path

from tests.commands import Commands

LONG = "postgresql+psycopg://gpuyard:SECRET@a-rather-long-name-of-a-database-server.example.org:5432/gpuyard"
MASKED = LONG.replace("SECRET", "***")


def test_a_long_value_is_printed_whole_into_a_pipe_and_folded_on_a_narrow_terminal(tmp_path: Path) -> None:
    yard = Commands(tmp_path, {"GPUYARD_DATABASE_URL": LONG})
    (line,) = (line for line in yard.run("config", "show").out.splitlines() if line.startswith("database_url"))
    assert line.split() == ["database_url", "environment", MASKED]
    folded = yard.run("config", "show", COLUMNS="80").out
    assert MASKED in "".join(part.rstrip()[part.rstrip().rfind(" ") + 1 :] for part in folded.splitlines())


def test_json_says_value_and_origin(tmp_path: Path) -> None:
    yard = Commands(tmp_path, {"GPUYARD_SHARD_ROWS": "64", "GPUYARD_API_KEY": "gk-secret"})
    found = yard.run("config", "show", "--json")
    assert found.document["shard_rows"] == {"value": "64", "from": "environment"}
    assert found.document["grace_seconds"] == {"value": "50", "from": "default"}
    assert "gk-secret" not in found.out
