"""Files that hold keys: mode 0600 from their first byte, replaced whole."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that a reader sees all of it or nothing, and nobody else anything."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp: 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: Path) -> dict[str, Any]:
    """The content, or nothing when there is no such file. Raises ValueError when it is not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not hold a JSON object")  # noqa: TRY004 - bad content, no bad argument
    return found
