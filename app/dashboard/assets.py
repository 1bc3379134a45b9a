"""The files of the page, read once."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
"""Nothing but our own files, and no code that was made out of text: trusted types close innerHTML and its kin."""

HEADERS = {
    "content-security-policy": "; ".join(POLICY),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A browser asks every time and is mostly told that nothing changed, so no page runs with another version's code.
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file. `etag` is strong, with its quotes."""

    content: bytes
    media_type: str
    etag: str


@cache
def all_assets() -> dict[str, Asset]:
    """Give every file of the page by its name; what is not in here does not exist."""
    return {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
