"""Keys as settings hold them, fit for the header that carries them."""

import re

_FITS = re.compile(r"[ -~]+")


def fit_for_a_header(key: str) -> str:
    """Give a key without the line end of the file that it came from.

    Raises ValueError for one that no header can carry: what an HTTP library says of that would show the key.
    """
    found = key.strip()
    if not _FITS.fullmatch(found):
        raise ValueError("a key has nothing but printable ASCII characters, and some of them")
    return found
