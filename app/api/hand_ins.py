"""Taking finished rows in: the header first, then the parts' bytes piece by piece (app.schemas.segments)."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from pydantic import ValidationError

from app.api.errors import refusal_of
from app.api.guarding import MAX_VALUES
from app.api.in_flight import InFlight, UnderWay
from app.api.pouring import PIECE_BYTES, pour
from app.api.threads import WORKER_CONTENTS
from app.domain.errors import BadRequest, TooLarge
from app.schemas.json_values import has_more_values
from app.schemas.segments import MAX_BYTES, HandInAnswer, HandInHeader
from app.services import handins
from app.services.context import Caller, Yard

MAX_HEADER_BYTES = 4 * 1024 * 1024
MIN_COUNTED_BYTES = 16 * 1024
"""What a call takes, however short its body is."""


async def receive(
    yard: Yard, caller: Caller, in_flight: InFlight, request: Request, *, boot_id: str | None
) -> HandInAnswer:
    """Take a hand-in. One that fits a piece costs one thread once; of a larger one the header is judged first.

    Raises TooLarge, and what app.services.handins and InFlight raise.
    """
    length = request.headers.get("content-length", "")
    declared = int(length) if length.isdigit() else MAX_BYTES  # the route lets no more through
    with (
        in_flight.hold(UnderWay.HAND_INS, caller.org_id),
        in_flight.hold(UnderWay.HAND_IN_BYTES, caller.org_id, max(declared, MIN_COUNTED_BYTES)),
    ):
        chunks = request.stream()
        line, rest, is_whole = await _read_header(chunks)
        if is_whole:
            return await WORKER_CONTENTS.run(_take, yard, caller, line, rest, boot_id)
        arriving = await WORKER_CONTENTS.run(_judge, yard, caller, line)
        try:
            if arriving.body.is_read:
                await pour(chunks, arriving.body.feed, WORKER_CONTENTS, first=rest)
            else:
                await _pass_over(chunks)
            return await WORKER_CONTENTS.run(arriving.finish, boot_id=boot_id)
        except BaseException:
            # Also when the worker went away: the task is cancelled, and its clearing up must not be.
            await asyncio.shield(WORKER_CONTENTS.run(arriving.body.abort))
            raise


async def _read_header(chunks: AsyncIterator[bytes]) -> tuple[bytes, bytes, bool]:
    """Read the header's line and what came with it, up to a piece; the last says whether that is all there is."""
    received = bytearray()
    end = -1
    async for chunk in chunks:
        if end < 0 and (found := chunk.find(b"\n")) >= 0:
            end = len(received) + found
        received += chunk
        if (end if end >= 0 else len(received)) > MAX_HEADER_BYTES:
            message = f"the header of a hand-in has at most {MAX_HEADER_BYTES} bytes; send fewer parts"
            raise TooLarge(message, code="too_large")
        if end >= 0 and len(received) - end > PIECE_BYTES:
            return bytes(received[:end]), bytes(received[end + 1 :]), False
    if end < 0:
        raise BadRequest("a hand-in begins with one line of JSON", code="invalid_body")
    return bytes(received[:end]), bytes(received[end + 1 :]), True


async def _pass_over(chunks: AsyncIterator[bytes]) -> None:
    """Read what nobody needs, so that the worker can read its answer."""
    async for _ in chunks:
        pass


def _take(yard: Yard, caller: Caller, line: bytes, body: bytes, boot_id: str | None) -> HandInAnswer:
    return handins.hand_in(yard, caller, _parsed(line), body, boot_id=boot_id)


def _judge(yard: Yard, caller: Caller, line: bytes) -> handins.HandIn:
    return handins.HandIn(yard, caller, _parsed(line))


def _parsed(line: bytes) -> HandInHeader:
    if has_more_values(line, MAX_VALUES):
        message = f"the header of a hand-in has at most {MAX_VALUES} values; send fewer parts"
        raise BadRequest(message, code="too_many_values")
    try:
        return HandInHeader.model_validate_json(line)
    except ValidationError as error:
        raise refusal_of(dict(error.errors()[0])) from error
