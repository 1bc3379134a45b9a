"""Rows that share requests for embeddings, and what becomes of each when a request goes wrong (B-16, B-20).

| the shared request | each of its rows |
|---|---|
| was answered with a vector a text | its vector, its share of the tokens |
| was answered with fewer or more | sent alone: a bare list does not tell which are missing |
| was refused, broke the runtime or timed out | sent alone: only the bad ones fail |
| the runtime went away while rows were sent alone | that reply, for those left: each would wait in vain |
| was refused for what all rows share (key, model), or not taken (busy, no runtime) | that reply |
"""

from collections.abc import Callable, Sequence

from app.domain.rows import Blame, Reply, Row, RowErrorCode
from executors.runtimes.ollama_body import Malformed, Refused
from executors.runtimes.ollama_embed import Embedding, read

_SHARED_FAULTS = frozenset({401, 403, 404, 429, 502, 503, 504})
_AWAY = frozenset({Blame.RUNTIME, Blame.GATEWAY})
_MAX_SILENT = 2
"""So many rows in a row may time out alone: then it is the runtime that hangs, and the others need not wait too."""

Together = Callable[[Sequence[Embedding]], list[Reply] | Reply]
Alone = Callable[[Row], Reply]


def embed_in_chunks(rows: Sequence[Row], *, cuts: bool, together: Together, alone: Alone) -> list[Reply]:
    """Give a reply a row, in their order. Rows with the same parameters share a request."""
    replies: dict[int, Reply] = {}
    parts: dict[bytes, list[tuple[int, Embedding]]] = {}
    for index, row in enumerate(rows):
        try:
            one = read(row, cuts=cuts)
        except (Malformed, Refused):
            replies[index] = alone(row)
        else:
            parts.setdefault(one.sharing, []).append((index, one))
    for part in parts.values():
        made = _embed([one for _, one in part], together, alone)
        replies |= zip((index for index, _ in part), made, strict=True)
    return [replies[index] for index in range(len(rows))]


def _embed(part: Sequence[Embedding], together: Together, alone: Alone) -> list[Reply]:
    if len(part) == 1:
        return [alone(part[0].row)]
    made = together(part)
    if not isinstance(made, Reply):
        return made
    if made.blame in _AWAY or made.status in _SHARED_FAULTS:
        return [made] * len(part)
    return _one_by_one(part, alone)


def _one_by_one(part: Sequence[Embedding], alone: Alone) -> list[Reply]:
    replies: list[Reply] = []
    silent = 0
    for one in part:
        is_gone = bool(replies) and replies[-1].blame in _AWAY
        reply = replies[-1] if is_gone or silent == _MAX_SILENT else alone(one.row)
        is_silent = reply.error is not None and reply.error.code is RowErrorCode.REQUEST_TIMEOUT
        silent = min(_MAX_SILENT, silent + 1) if is_silent else 0
        replies.append(reply)
    return replies
