"""What every rival is given, and how it reads and writes rows. Standard library only: it runs in each rival's venv."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Given(NamedTuple):
    """A task: the rows of `input` to the engine at `url`, an answer a line into `output`."""

    url: str
    input: Path
    output: Path
    in_flight: int


def read_arguments() -> Given:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="of the engine, without /v1")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--in-flight", type=int, default=64)
    return Given(**vars(parser.parse_args()))


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the input a row at a time."""
    with path.open("rb") as lines:
        for line in lines:
            yield json.loads(line)


def answer_line(custom_id: str, body: Any) -> str:
    """Write one row's line, as a batch's output file has it."""
    return json.dumps({"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}) + "\n"
