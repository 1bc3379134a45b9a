"""Contents that a disk, or somebody at it, has changed: each way keeps or changes the length."""

from collections.abc import Callable, Mapping

from app.blobs.store import BlobStore


def flip(content: bytes, at: int) -> bytes:
    """Change one bit."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


WAYS: Mapping[str, Callable[[bytes], bytes]] = {
    "flipped": lambda content: flip(content, len(content) // 2),
    "halved": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "longer": lambda content: content + b"{}\n",
}


def damage(blobs: BlobStore, key: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a stored content; returns what it was."""
    before = blobs.read(key)
    blobs.put(key, [change(before)])
    return before


def swap(blobs: BlobStore, one: str, other: str) -> None:
    """Give two contents each other's place."""
    first = damage(blobs, one, lambda _: blobs.read(other))
    blobs.put(other, [first])
