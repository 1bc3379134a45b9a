"""Cutting a hand-in that was not taken as a whole: what of it can be taken goes home, and what cannot shows itself."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.domain.outputs import output_line
from app.domain.rows import Reply, RowError, RowErrorCode
from app.domain.rowsets import RowSet
from app.schemas.handins import write_line
from app.schemas.segments import End, HandInHeader, Part
from app.schemas.wire import UsageCounts
from app.worker.handin import HandIn, written

_UNCOUNTED = {"usage": UsageCounts(), "off_format": 0, "other_model": 0}


class _Piece(NamedTuple):
    parts: Sequence[Part]
    ends: Sequence[End]
    lines: list[bytes]


def without_answer(sent: HandIn, why: str) -> HandIn | None:
    """Give the same hand-in, under the same number, with an error in place of the one row's answer; None: not one row.

    Its tokens are not counted: nobody gets what they were spent on.
    """
    head, _, content = sent.body.partition(b"\n")
    header = HandInHeader.model_validate_json(head)
    if content.count(b"\n") != 1:
        return None
    (part,) = header.parts
    number, _, line = content.split(b"\t", 2)
    reply = Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, f"its answer could not be stored: {why}"))
    row = int(number)
    error = output_line(header.batch_id, row, json.loads(line)["custom_id"], reply)
    lines = [write_line(row, reply, error)]
    failed = _part_of(part, lines).model_copy(update=_UNCOUNTED)
    return replace(written(header.model_copy(update={"parts": [failed]}), lines), line_bytes=0)


def cut_up(refused: HandIn, next_seq: Callable[[int], int]) -> list[HandIn]:
    """Give smaller ones: a shard each, else halves of the one shard's rows. Nothing where one row is left, or none.

    `next_seq` numbers another part of a lease. Their `line_bytes` are 0: the backlog forgets them with the whole.
    """
    head, _, content = refused.body.partition(b"\n")
    header = HandInHeader.model_validate_json(head)
    found: dict[int, _Piece] = {end.lease_id: _Piece([], [end], []) for end in header.ends}
    for part in header.parts:
        own, content = content[: part.length], content[part.length :]
        ends = found[part.lease_id].ends if part.lease_id in found else []
        found[part.lease_id] = _Piece([part], ends, [line + b"\n" for line in own.split(b"\n")[:-1]])
    pieces = list(found.values())
    if len(pieces) == 1:
        pieces = _halves(pieces[0], next_seq)
    word = header.first_rows
    made: list[HandIn] = []
    for piece in pieces:
        smaller = header.model_copy(update={"parts": piece.parts, "ends": piece.ends, "first_rows": word})
        made.append(replace(written(smaller, piece.lines), line_bytes=0))
        word = None  # said once, with the first
    return made


def _halves(whole: _Piece, next_seq: Callable[[int], int]) -> list[_Piece]:
    """The end goes with the second half, and what is only summed up, such as tokens, with the first."""
    middle = len(whole.lines) // 2
    if not middle:
        return []
    (part,) = whole.parts
    first, second = whole.lines[:middle], whole.lines[middle:]
    another = part.model_copy(update={"seq": next_seq(part.lease_id)} | _UNCOUNTED)
    return [_Piece([_part_of(part, first)], [], first), _Piece([_part_of(another, second)], whole.ends, second)]


def _part_of(part: Part, lines: Sequence[bytes]) -> Part:
    rows = [line.split(b"\t", 2) for line in lines]
    completed = sum(flag == b"c" for _, flag, _ in rows)
    return part.model_copy(
        update={
            "rows": str(RowSet.of(int(number) for number, _, _ in rows)),
            "completed": completed,
            "failed": len(rows) - completed,
            "length": sum(map(len, lines)),
        }
    )
