"""What `gpuyard backup` and `gpuyard restore` run, where database and contents are."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from app.blobs.store import BlobError
from app.db.backups import DumpFailed
from app.os_errors import plainly
from app.services import backups
from app.services.backups import BackupRefused, Made
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
    except (BackupRefused, DumpFailed, BlobError, OSError) as error:
        print(f"gpuyard: {plainly(error)}", file=sys.stderr)
        return 1
    finally:
        yard.store.close()
    print(json.dumps(asdict(made)) if as_json else _text(verb, made, folder))
    if made.damaged:
        print(f"gpuyard: {_damage(verb, made, settings.data_dir)}", file=sys.stderr)
        return 1
    return 0


def _text(verb: str, made: Made, folder: Path) -> str:
    size = f"{made.contents} contents, {made.bytes / 1024**2:.1f} MiB"
    if verb == "backup":
        return (
            f"gpuyard: {folder} holds the {made.database} database at {made.made_at}, {size}, {made.copied} copied now"
        )
    return (
        f"gpuyard: put back as it was at {made.made_at}, {size}. Schema {made.revision}: run `gpuyard migrate` if "
        "serve asks for it. Then start everything; workers that leave because nobody knows them start again as new ones"
    )


def _damage(verb: str, made: Made, data_dir: Path) -> str:
    keys = ", ".join(made.damaged[:SHOWN])
    keys += f" and {len(made.damaged) - SHOWN} more" if len(made.damaged) > SHOWN else ""
    if verb == "backup":
        return f"this installation has lost or damaged contents that are still needed, and so has the backup: {keys}"
    place = data_dir / "blobs" / "ab" / "cd" / "abcd…"
    lost = f"the backup lacks, or has damaged, contents that are still needed: {keys}"
    return f"{lost}. Where another copy has them, put them to {place}"
