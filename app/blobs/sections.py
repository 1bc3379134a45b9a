"""A byte range of an open file, as a file of its own, and the pieces of a file."""

import io
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE_BYTES = 1024 * 1024


class Section(io.RawIOBase):
    """Reads bytes `start` to `end` (exclusive) of `file`, which it owns: closing the section closes the file.

    Errors of the file pass through `errors`.
    """

    def __init__(
        self, file: io.FileIO, start: int, end: int, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__()
        self._errors = errors
        self._file = file
        self._left = max(0, end - start)
        file.seek(start)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        """Fill `buffer` as far as the range goes; 0 at its end."""
        with self._errors(), memoryview(buffer) as view, view.cast("B") as room:
            count = self._file.readinto(room[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        """Close the file below as well."""
        if not self.closed:
            self._file.close()
        super().close()


def pieces_of(file: BinaryIO) -> Generator[bytes, None, None]:
    """Yield what is left of a file in pieces of a MiB, and close it."""
    with file:
        yield from iter(lambda: file.read(PIECE_BYTES), b"")
