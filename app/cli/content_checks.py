"""What `gpuyard doctor --contents` finds out: this machine's server part reads everything, and says a line for each."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.cli import server_part
from app.cli.errors import require_extra
from app.cli.findings import Finding
from app.cli.printing import clean

NAMED = 5
PART = "contents"


def check_contents(folder: Path | None) -> Iterator[Finding]:
    """Read every content of the installation on this machine, and say of each that is not what was written."""
    require_extra("server", "fastapi", "uvicorn", "sqlmodel", "alembic")
    unverifiable: list[str] = []
    count = 0
    totals: dict[str, Any] | None = None
    asked = server_part.command("contents", *server_part.data_option(folder))
    with subprocess.Popen(  # noqa: S603 - our own program
        asked, env=server_part.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        for line in running.stdout or ():
            found = json.loads(line)
            if "state" not in found:
                totals = found
            elif found["state"] == "not verifiable":
                count += 1
                unverifiable = [*unverifiable, found["of"]][:NAMED]
            else:
                yield _finding(found)
        errors = running.stderr.read() if running.stderr is not None else ""
    if count:
        yield _unverifiable(count, unverifiable)
    yield _last(totals, errors)


def _finding(found: dict[str, Any]) -> Finding:
    of = clean(found["of"])
    if found["state"] == "sound again":
        return Finding(PART, "ok", f"{of}: sound again, and can be read")
    return Finding(PART, "red", f"{of}: {found['state']}, {clean(found['what'])}", found["do"])


def _unverifiable(count: int, some: list[str]) -> Finding:
    names = ", ".join(clean(name) for name in some) + (", …" if count > len(some) else "")
    text = f"not verifiable when they are read: {count} stored files were written before checksums ({names})"
    return Finding(PART, "warn", text, "no action needed: their SHA-256 matched, and retention deletes them in time")


def _last(totals: dict[str, Any] | None, errors: str) -> Finding:
    if totals is None:
        why = clean(errors.strip().removeprefix("gpuyard: ")) or "this machine's server part ended without a word"
        return Finding(PART, "red", f"stopped early: {why}", "run it on the machine of the control plane")
    size = f"{totals['bytes'] / 1024**2:.1f} MiB"
    read = f"stored files read: {totals['contents']} ({size}); inputs of shards that may still run: {totals['shards']}"
    if totals["wrong"]:
        return Finding(PART, "red", f"{read}; damaged or missing: {totals['wrong']}", "see above")
    return Finding(PART, "ok", f"{read}; all match")
