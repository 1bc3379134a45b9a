"""Fetching a byte range of a file, going on where a connection broke (A-04)."""

from collections.abc import Mapping

from app.client.errors import Refused, TryLater
from app.client.http import Http

_PARTIAL = 206


def download(
    http: Http, path: str, start: int, end: int, *, headers: Mapping[str, str], deadline_seconds: float
) -> bytes:
    """Give the bytes from `start` up to, not including, `end`.

    Raises TryLater when `deadline_seconds` pass without a single new byte, Refused when the file is shorter.
    """
    found = bytearray()
    patience = http.patience(deadline_seconds)
    while len(found) < end - start:
        before = len(found)
        try:
            _more(http, path, start, end, headers, found)
        except TryLater as error:
            if len(found) > before:
                patience.anew()
            if not patience.waits(error):
                raise
        else:
            if len(found) < end - start:
                raise Refused(f"{path} ends at byte {start + len(found)}, before byte {end}")
    return bytes(found)


def _more(http: Http, path: str, start: int, end: int, headers: Mapping[str, str], found: bytearray) -> None:
    """Append what one connection brings, whatever becomes of it."""
    wanted = {**headers, "range": f"bytes={start + len(found)}-{end - 1}", "accept-encoding": "identity"}
    with http.stream("GET", path, headers=wanted) as response:
        # A server that knows no ranges sends the whole file: what comes before our part is passed over.
        skip = 0 if response.status_code == _PARTIAL else start + len(found)
        for piece in response.iter_bytes():
            found += piece[skip:]
            skip = max(0, skip - len(piece))
            if len(found) >= end - start:
                del found[end - start :]
                return
