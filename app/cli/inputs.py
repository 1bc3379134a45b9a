"""The input of a batch, read as it is sent: a file or standard input, never whole in memory."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from app.cli.errors import CliError

STDIN = "-"
MAX_FIRST_LINE = 64 * 1024 * 1024
"""So much is read to find the first row's url; it is the server's own limit for a line, as it comes."""


class Body(Protocol):
    """What an upload reads from."""

    def read(self, count: int, /) -> bytes:
        """Give at most so many bytes; none at the end."""


@dataclass
class Input:
    """Rows about to be sent. `size` is in bytes, None for standard input. `sent` is told how many were read."""

    name: str
    size: int | None
    _file: BinaryIO
    _head: bytes
    sent: Callable[[int], None] = field(default=lambda _count: None)

    def endpoint(self) -> str:
        """Give the first row's url. Raises CliError when the first line is no row."""
        try:
            row = json.loads(self._head)
            url = row["url"]
        except (ValueError, RecursionError, KeyError, TypeError):
            url = None
        if not isinstance(url, str):
            raise CliError(
                f"{self.name}: the first line is no row of a batch, which is one JSON object a line with custom_id, "
                "method, url and body; name --endpoint to send it all the same"
            )
        return url

    def body(self) -> Body:
        """Give the bytes from the first one on, once."""
        return _Pipe(self) if self.size is None else _File(self)

    def rewind(self, count: int) -> None:
        """Begin again after `count` bytes; only a file can."""
        self._file.seek(0)
        self._head = b""
        self.sent(-count)

    def rest(self, count: int) -> bytes:
        """Give the next bytes, at most so many."""
        found, self._head = self._head[:count], self._head[count:]
        piece = found or self._file.read(count)
        self.sent(len(piece))
        return piece


class _Pipe:
    """Sent in chunks of unknown number: it has no length to tell."""

    def __init__(self, source: Input) -> None:
        self._source = source

    def read(self, count: int, /) -> bytes:
        return self._source.rest(count)


class _File(_Pipe):
    """Sent with its length, which the HTTP client asks by seeking; a file that changes meanwhile is refused.

    The client seeks its beginning before each try.
    """

    def __init__(self, source: Input) -> None:
        super().__init__(source)
        self._left = source.size or 0
        self._size = self._left

    def tell(self) -> int:
        return self._size - self._left

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END:
            return self._size
        if offset == 0 and self.tell():
            self._source.rewind(self.tell())
            self._left = self._size
        return offset

    def read(self, count: int, /) -> bytes:
        piece = super().read(min(count, self._left))
        if not piece and self._left:
            raise CliError(f"{self._source.name} became shorter while it was sent: nothing was submitted")
        self._left -= len(piece)
        return piece


@contextmanager
def open_input(path: str) -> Iterator[Input]:
    """Open what is to be sent and look at its first line. Raises CliError when there is nothing to read."""
    if path == STDIN:
        if sys.stdin is None:
            raise CliError("cannot read standard input: it is closed")
        yield _begin("standard input", None, sys.stdin.buffer)
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed by the `with` below; only the open itself is tried here
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error
    with file:
        found = os.fstat(file.fileno())
        # A named pipe and the like have no size to go by.
        regular = Path(path).is_file()
        yield _begin(path, found.st_size if regular else None, file)


def _begin(name: str, size: int | None, file: BinaryIO) -> Input:
    try:
        head = file.readline(MAX_FIRST_LINE)
    except OSError as error:
        raise CliError(f"cannot read {name}: {error.strerror}") from error
    if not head:
        raise CliError(f"{name} is empty: a batch has at least one row")
    return Input(name=name, size=size, _file=file, _head=head)
