"""Folders of ours that nobody but their owner reads. Standard library only; both sides may import it."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEPT_BY_THE_SYSTEM = ("lost+found",)


def keep(folder: Path, *, ours: Sequence[str], beside: Sequence[str] = (), more: Iterable[Path] = ()) -> list[str]:
    """Close a folder to other users, and what lies in it under the names `ours`; return what was open, for the log.

    A folder that is missing is made. One that holds anything but `ours` and `beside` is shared with something else:
    it keeps its mode, and only what is ours in it is closed. `more` are files of ours in other places. Nothing of
    another user is touched. Raises OSError when the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = sorted(path.name for path in folder.iterdir())
    mine = [folder / name for name in names if _matches(name, ours)]
    logs = [path for path in (folder / "logs").glob("*") if folder / "logs" in mine]
    foreign = [name for name in names if not _matches(name, (*ours, *beside, *_KEPT_BY_THE_SYSTEM))]
    closed = [str(path) for path in (*mine, *logs, *more) if _close(path)]
    if not foreign:
        closed += [str(folder)] if _close(folder.resolve()) else []
    return closed


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _close(path: Path) -> bool:
    """Take a path's rights from everybody but its owner, if that is this user; tell whether there were any."""
    with suppress(OSError):  # gone meanwhile, or a disk that keeps no modes
        found = path.lstat()
        is_kept = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
        if is_kept and found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
            return not path.stat().st_mode & _OTHERS
    return False
