"""What `gpuyard backup` and `gpuyard restore` run, where database and contents are."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from app.blobs.store import BlobError
from app.db.backups import DumpFailed
from app.os_errors import plainly
from app.services import backups, content_checks
from app.services.backups import BackupRefused, Made
from app.services.context import Yard
from app.services.opening import open_yard
from config.settings import ServerSettings

SHOWN = 5


def run(verb: str, settings: ServerSettings, folder: Path | None, *, as_json: bool) -> int:
    """Do it, and say what came of it; gives the exit code. Raises what app.api.__main__ says in one line."""
    if folder is None:
        print(f"gpuyard: {verb} needs a folder", file=sys.stderr)
        return 2
    yard = open_yard(settings)
    does = backups.make if verb == "backup" else backups.put_back
    try:
        made = does(yard, settings.data_dir, folder)
        print(json.dumps(asdict(made)) if as_json else _text(verb, made, folder))
        if not made.damaged and not made.damaged_here:
            return 0
        for line in _damage(verb, made, yard, settings.data_dir, folder):
            print(f"gpuyard: {line}", file=sys.stderr)
    except (BackupRefused, DumpFailed, BlobError, OSError) as error:
        print(f"gpuyard: {plainly(error)}", file=sys.stderr)
    finally:
        yard.store.close()
    return 1


def _text(verb: str, made: Made, folder: Path) -> str:
    whole = f"{made.contents - len(made.damaged)} of " if made.damaged else ""
    size = f"{whole}{made.contents} contents, {made.bytes / 1024**2:.1f} MiB"
    if verb == "backup":
        return (
            f"gpuyard: {folder} holds the {made.database} database at {made.made_at}, {size}, {made.copied} copied now"
        )
    return (
        f"gpuyard: put back as it was at {made.made_at}, {size}. Schema {made.revision}: run `gpuyard migrate` if "
        "serve asks for it. Then start everything; workers that leave because nobody knows them start again as new ones"
    )


def _damage(verb: str, made: Made, yard: Yard, data_dir: Path, folder: Path) -> Iterator[str]:
    """Say line by line what is damaged or gone, where its place is, and what to do."""

    def named(keys: Sequence[str]) -> Iterator[str]:
        for key in keys[:SHOWN]:
            yield f"  {content_checks.whose(yard, key)}: {data_dir / content_checks.place(key)}"
        if len(keys) > SHOWN:
            yield f"  and {len(keys) - SHOWN} more"

    if made.damaged and verb == "backup":
        yield "damaged or gone in this installation, and no whole copy in the backup:"
    elif made.damaged:
        yield "needed, and damaged or gone in the backup; put a whole copy to its place where you have one:"
    yield from named(made.damaged)
    if made.damaged_here:
        yield f"damaged or gone in this installation; copy each to its place from {folder / 'blobs'}:"
    yield from named(made.damaged_here)
    yield "`gpuyard doctor --contents` says what is wrong with each, and makes those readable again that were put back"
