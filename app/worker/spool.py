"""What must reach the control plane, on disk before it is sent, so that a `kill -9` loses none of it (DR-11).

A live share sends its own files and removes them. What nobody will send any more, because its process or its share
ended, is an orphan: `send_orphans` sends those, oldest first, under their old lease ids.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog
from pydantic import ValidationError

from app import durable
from app.client.control_plane import ControlPlane
from app.client.errors import BUG, NotKnown, Refused, TryLater
from app.schemas.claims import FailureReport
from app.schemas.segments import HandInHeader

LEAST_ROOM = 64 * 1024
"""A disk with less than this is full, however little the next hand-in needs."""
OLD_SECONDS = 24 * 3600.0
"""A lease that nobody renews has ended hours before."""
MOST_BROKEN = 3
"""So many in a row are answered 500 before the rest are left for the next time: it may be so of all of them."""
PROBE = "probe"
log = structlog.get_logger("gpuyard.worker")


class SpoolKind(StrEnum):
    """What a spooled file is, by its suffix."""

    HAND_IN = "handin"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Spooled:
    """One file that waits."""

    path: Path
    kind: SpoolKind


class Spool:
    """The spool directory of one worker. Thread-safe. `on_change` is called when `error` comes or goes."""

    def __init__(self, directory: Path) -> None:
        self.error: str | None = None
        """Why the last write failed; a worker whose spool is full takes no work, and `try_again` finds room."""
        self.on_change: Callable[[], object] = lambda: None
        self._lacking = 0
        self._directory = directory
        self._names = (f"{time.time_ns():020d}-{count:06d}" for count in itertools.count())
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        for left in directory.glob(".*.tmp"):
            left.unlink()  # a write that never became a file
        self._orphans = [Spooled(path, SpoolKind(path.suffix[1:])) for path in self._files()]

    def write(self, kind: SpoolKind, body: bytes) -> Spooled:
        """Keep `body` until `remove`. Raises OSError when it cannot, which `error` then says."""
        with self._lock:
            path = self._directory / f"{next(self._names)}.{kind}"
        try:
            durable.write(path, body)
        except OSError as error:
            self._lacking = max(self._lacking, len(body), LEAST_ROOM)
            self._note(_words(error))
            raise
        return Spooled(path, kind)

    def keep(self, kind: SpoolKind, body: bytes) -> Spooled | None:
        """As `write`; None when it cannot, which `error` then says: what is sent at once needs no spool."""
        with suppress(OSError):
            return self.write(kind, body)
        return None

    def check(self) -> None:
        """Look whether anything can be kept; `error` says why not. A folder that somebody removed is made anew."""
        self._lacking = max(self._lacking, LEAST_ROOM)
        probe = self._directory / PROBE
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.write(probe, bytes(self._lacking))
            probe.unlink()
        except OSError as error:
            self._note(_words(error))
            return
        self._lacking = 0
        self._note(None)

    def try_again(self) -> None:
        """Look whether what did not fit would fit now."""
        if self.error is not None:
            self.check()

    def _note(self, error: str | None) -> None:
        if (error is None) is (self.error is None):
            return
        self.error = error
        if error is not None:
            log.error("spool.full", why=error)
        else:
            log.info("spool.mended")
        self.on_change()

    def remove(self, item: Spooled) -> None:
        """It is answered. A file that stays (a disk that turned read-only) is sent once more by the next process."""
        try:
            item.path.unlink(missing_ok=True)
        except OSError as error:
            self._note(_words(error))

    def orphan(self, item: Spooled) -> None:
        """Leave it to `send_orphans`: its share has ended."""
        with self._lock:
            self._orphans.append(item)

    @property
    def has_orphans(self) -> bool:
        """Whether `send_orphans` has something to do."""
        return bool(self._orphans)

    def count(self) -> int:
        """Count what waits for an answer."""
        return len(self._files())

    def leases(self) -> list[int]:
        """Return the leases of which something lies in the spool: they must outlive this process for that."""
        found: set[int] = set()
        with self._lock:
            paths = self._files()
        for path in paths:
            found.update(_leases(path))
        return sorted(found)

    def _files(self) -> list[Path]:
        """What was spooled, oldest first; other files have other suffixes (an NFS client's `.nfs…`, a core dump)."""
        return sorted(path for kind in SpoolKind for path in self._directory.glob(f"*.{kind}"))

    def send_orphans(self, plane: ControlPlane, *, deadline_seconds: float) -> None:
        """Send all, oldest first. Raises TryLater or Dismissed; what was not answered stays.

        What is refused, makes no sense, or is of a worker that nobody knows any more, is thrown away: it would stand
        before everything else for ever. What the disk does not give is left for the next process. What the API breaks
        on (500) lets all others go first, `MOST_BROKEN` in a row leave the rest for the next call, and one is thrown
        away when it is so old that its lease has long ended.

        They are sent without a boot id: they count by their lease alone, also when this process has not said hello.
        """
        broken: TryLater | None = None
        in_a_row = 0
        with self._sending:
            for item in self._to_send():
                try:
                    _send(item, plane, deadline_seconds)
                except TryLater as error:
                    if error.status != BUG:
                        raise
                    if not _is_old(item):
                        broken, in_a_row = error, in_a_row + 1
                        self._put_last(item)
                        if in_a_row == MOST_BROKEN:
                            break
                        continue
                    log.warning("spool.refused", file=item.path.name, why=str(error))
                    self.remove(item)
                except (Refused, NotKnown, ValidationError, FileNotFoundError) as error:
                    log.warning("spool.refused", file=item.path.name, why=str(error))
                    self.remove(item)
                except OSError as error:
                    log.error("spool.unreadable", file=item.path.name, why=_words(error))  # noqa: TRY400 - one line
                else:
                    self.remove(item)
                    in_a_row = 0
                with self._lock:
                    self._orphans.remove(item)
        if broken is not None:
            raise broken

    def _put_last(self, item: Spooled) -> None:
        with self._lock:
            self._orphans.remove(item)
            self._orphans.append(item)

    def _to_send(self) -> Iterator[Spooled]:
        """Give each orphan once, those too that come meanwhile."""
        given: set[Path] = set()
        while left := [item for item in list(self._orphans) if item.path not in given]:
            given.add(left[0].path)
            yield left[0]


def _is_old(item: Spooled) -> bool:
    try:
        return time.time() - item.path.stat().st_mtime > OLD_SECONDS
    except OSError:
        return False


def _words(error: OSError) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _send(item: Spooled, plane: ControlPlane, deadline_seconds: float) -> None:
    body = item.path.read_bytes()
    if item.kind is SpoolKind.FAILURE:
        report = FailureReport.model_validate_json(body)
        plane.report_failure(report, deadline_seconds=deadline_seconds, as_boot=False)
        return
    header = HandInHeader.model_validate_json(body.partition(b"\n")[0])
    answer = plane.hand_in(body, ends=bool(header.ends), deadline_seconds=deadline_seconds, as_boot=False)
    log.info("spool.sent", file=item.path.name, parts=answer.parts, ends=answer.ends)


def _leases(path: Path) -> list[int]:
    try:
        with path.open("rb") as file:
            first = file.readline()
        if path.suffix == f".{SpoolKind.FAILURE}":
            return [FailureReport.model_validate_json(first).lease_id]
        header = HandInHeader.model_validate_json(first)
        return [*(part.lease_id for part in header.parts), *(end.lease_id for end in header.ends)]
    except (OSError, ValidationError):
        return []
