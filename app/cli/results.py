"""Results as one file: exactly one line per input row, in input order, failures included."""

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from app.cli.batch_text import Batch, has_ended, ours
from app.cli.errors import CliError, ExitCode
from app.cli.watching import looks
from app.client.errors import TryLater
from app.client.public import PublicApi, path_to

STDOUT = "-"
FOLLOW_SECONDS = 1.0
TRIES = 5
_NEXT = "x-next-after"


def check_target(path: str) -> None:
    """Find out before the work whether results can be written to `path`. Raises CliError."""
    if path == STDOUT:
        return
    try:
        if Path(path).is_dir():
            raise CliError(f"{path} is a folder: name a file in it", exit_code=ExitCode.USAGE)
        is_file = _replaceable(path)
        place = _final(path).parent if is_file else Path(path)
    except (OSError, RuntimeError) as error:  # too long a name, links that lead to each other
        why = error.strerror if isinstance(error, OSError) else error
        raise CliError(f"cannot write {path}: {why}", exit_code=ExitCode.USAGE) from error
    if is_file and not place.is_dir():
        raise CliError(f"cannot write {path}: there is no folder {place}", exit_code=ExitCode.USAGE)
    if not os.access(place, os.W_OK):
        raise CliError(f"cannot write {path}: no permission to write to {place}", exit_code=ExitCode.USAGE)


def write_whole(api: PublicApi, batch: Batch, path: str, *, with_retries: bool = False) -> int:
    """Write an ended batch's results to `path`, whole or not at all; gives the number of lines."""
    for left in reversed(range(TRIES)):
        try:
            with target(path, batch_id=batch["id"]) as out:
                return _copy(api, batch, out, with_retries=with_retries)
        except TryLater as error:
            # Only a file can be begun again.
            if not left or error.is_busy or not _replaceable(path):
                raise
            time.sleep(FOLLOW_SECONDS)
    raise AssertionError


def _copy(api: PublicApi, batch: Batch, out: BinaryIO, *, with_retries: bool) -> int:
    total, lines = batch["request_counts"]["total"], 0
    path = path_to("v1", "batches", batch["id"], "results")
    with api.stream(path, with_retries="true" if with_retries else None) as response:
        for piece in response.iter_bytes():
            lines += piece.count(b"\n")
            out.write(piece)
    # One that ended before its input was read has no rows of its own, and its retries may.
    if lines != total and not (with_retries and total == 0):
        raise TryLater(f"{lines} of {total} results came")
    return lines


def running_retries(api: PublicApi, batch: Batch) -> Iterator[str]:
    """Name the batch's retries, and those of its retries, that have not ended."""
    for retry_id in ours(batch).get("retried_by") or []:
        retry = api.get(path_to("v1", "batches", retry_id))
        if not has_ended(retry):
            yield retry_id
        yield from running_retries(api, retry)


def stored_so_far(api: PublicApi, batch_id: str, after: str | None = None) -> Iterator[tuple[bytes, str | None]]:
    """Give the lines behind the cursor in the order stored, each with the cursor to go on from.

    Ends where nothing more is stored yet. The cursor is None in the lines of a batch that has ended: those are all of
    its rows, in input order, whatever the cursor was.
    """
    while True:
        with api.stream(path_to("v1", "batches", batch_id, "results"), after=after) as response:
            cursor = response.headers.get(_NEXT)
            for line in _lines(response.iter_bytes()):
                yield line, cursor
        if cursor is None or cursor == after:
            return
        after = cursor


def follow(api: PublicApi, batch_id: str) -> Iterator[bytes]:
    """Give each row's line once, as rows are stored, until the batch has ended and all are given."""
    seen: set[bytes] = set()
    after: str | None = None
    whole, fails = False, 0
    while not whole:
        batch = next(looks(api, batch_id))
        if batch["status"] == "failed":
            return
        try:
            for line, cursor in stored_so_far(api, batch_id, after):
                mark = _mark(line)
                if mark not in seen:
                    seen.add(mark)
                    yield line
                after = cursor or after
            whole, fails = has_ended(batch), 0
        except TryLater:
            fails += 1
            if fails == TRIES:
                raise
        if not whole:
            time.sleep(FOLLOW_SECONDS)


def _mark(line: bytes) -> bytes:
    """Give 16 bytes that stand for the row: its custom_id is unique in a batch."""
    row: Any = json.loads(line)
    return blake2b(json.dumps(row["custom_id"]).encode(), digest_size=16).digest()


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut at line feeds alone: other separators may stand inside a row."""
    parts: list[bytes] = []
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line, b"\n"))
            parts.clear()
        if rest:
            parts.append(rest)
    if parts:
        raise TryLater("the results end within a line")


@contextmanager
def target(path: str, *, batch_id: str) -> Iterator[BinaryIO]:
    """Open where results go. A file appears whole, at the end of the block, or not at all; a device is written to.

    Raises CliError when it cannot be written.
    """
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        if not _replaceable(path):
            # By the name it was given: what a shell's >(…) leads to is a pipe, which has no name of its own.
            with Path(path).open("wb") as device:
                yield device
            return
        final = _final(path)
        # A name has so many bytes at most, and most letters have several.
        name = os.fsdecode(os.fsencode(final.name)[:200])
        part = final.with_name(f".{name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(final)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise CliError(
            f"cannot write {path}: {error.strerror or error}; the results are safe on the server: "
            f"`gpuyard batch results {batch_id} -o FILE` writes them elsewhere"
        ) from error


def _final(path: str) -> Path:
    """Give where the file is to be: a link is written through."""
    return Path(path).resolve()


def _replaceable(path: str) -> bool:
    """Tell whether `path` is a file, or nothing yet: what is there may be exchanged for another file."""
    if path == STDOUT:
        return False
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return True
