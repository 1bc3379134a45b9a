"""Compressed answers, which nobody asked for and some proxies send all the same (RFC 9110, section 8.4).

gpuyard asks for `identity`. The usual encodings are decoded; any other one is named.
"""

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import brotli

from executors.http_wire import Answer, AnswerTooLarge, HttpError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_Decode = Callable[[bytes, int], bytes]
"""Decode a body to at most so many bytes: one more shows that it has more."""


class Undecodable(HttpError):
    """The answer is encoded in a way that is unknown, or not as it says."""


def decoded(answer: Answer, max_body_bytes: int) -> Answer:
    """Return the answer with its body decoded. Raises Undecodable, and AnswerTooLarge for more than the limit."""
    if "content-encoding" not in answer.headers:
        return answer
    named = encodings(answer.headers)
    if not answer.body:
        return answer
    body = answer.body
    for encoding in reversed(named):
        body = _decoder(encoding)(body, max_body_bytes + 1)
        if len(body) > max_body_bytes:
            raise AnswerTooLarge(f"the answer has more than {max_body_bytes} bytes when its {encoding} is decoded")
    return replace(answer, body=body)


def encodings(headers: Mapping[str, str]) -> list[str]:
    """Return the names of the encodings that were applied, first to last, without `identity`."""
    named = [part.strip().lower() for part in headers.get("content-encoding", "").split(",")]
    return [name for name in named if name not in {"", "identity"}]


def _decoder(encoding: str) -> _Decode:
    decode = _DECODERS.get(encoding)
    if decode is None:
        known = ", ".join(sorted(_DECODERS))
        raise Undecodable(f"the answer has the content encoding {encoding[:100]!r}, and gpuyard decodes {known}")

    def checked(body: bytes, limit: int) -> bytes:
        try:
            return decode(body, limit)
        except (zlib.error, brotli.error, zstd.ZstdError) as error:
            raise Undecodable(f"the answer is not in {encoding}, as it says: {error}") from error

    return checked


def _gzip(body: bytes, limit: int) -> bytes:
    return _inflate(body, limit, 16 + zlib.MAX_WBITS)


def _deflate(body: bytes, limit: int) -> bytes:
    """Decode with zlib's header, as the RFC says, or without, as some servers do."""
    try:
        return _inflate(body, limit, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate(body, limit, -zlib.MAX_WBITS)


def _inflate(body: bytes, limit: int, window: int) -> bytes:
    inflater = zlib.decompressobj(window)
    found = inflater.decompress(body, limit)
    if not inflater.eof and len(found) < limit:
        raise zlib.error("it ends too soon")
    return found


def _brotli(body: bytes, limit: int) -> bytes:
    decompressor = brotli.Decompressor()
    found = bytes(decompressor.process(body, output_buffer_limit=limit))
    if not decompressor.is_finished() and len(found) < limit:
        raise brotli.error("it ends too soon")
    return found


def _zstd(body: bytes, limit: int) -> bytes:
    decompressor = zstd.ZstdDecompressor()
    found = decompressor.decompress(body, limit)
    if not decompressor.eof and len(found) < limit:
        raise zstd.ZstdError("it ends too soon")
    return found


_DECODERS: Mapping[str, _Decode] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
