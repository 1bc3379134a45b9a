"""Finding repeated custom_ids among millions of rows in flat memory (INPUTS 4, PERFORMANCE 5)."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

_BUCKETS = 256
_MAX_SUSPECTS = 1000


class IdTally:
    """The 64-bit hashes of all ids seen, 8 bytes an id. The hash is keyed per process, so nobody can aim at a clash."""

    def __init__(self) -> None:
        self._buckets = [array("q") for _ in range(_BUCKETS)]

    def add(self, custom_id: str) -> None:
        """Note one id."""
        digest = hash(custom_id)
        self._buckets[digest & (_BUCKETS - 1)].append(digest)

    def repeats(self) -> tuple[int, frozenset[int]]:
        """Give how many ids repeat an earlier one, and up to a thousand of their hashes.

        Works a bucket at a time: the scratch memory is that of one bucket in 256.
        """
        count = 0
        suspects: set[int] = set()
        for bucket in self._buckets:
            repeated = len(bucket) - len(set(bucket))
            if repeated:
                count += repeated
                for digest, times in Counter(bucket).items():
                    if times > 1 and len(suspects) < _MAX_SUSPECTS:
                        suspects.add(digest)
        return count, frozenset(suspects)


def confirmed(ids: Iterable[tuple[int, str]], suspects: frozenset[int]) -> Iterator[tuple[int, str, int]]:
    """Give (line, id, line of its first use) for each repeat among `ids`, which are (line, id) in file order.

    Only ids whose hash is in `suspects` are remembered, and compared whole: equal hashes alone accuse nobody.
    """
    first_seen: dict[str, int] = {}
    for line, custom_id in ids:
        if hash(custom_id) in suspects:
            first = first_seen.setdefault(custom_id, line)
            if first != line:
                yield line, custom_id, first
