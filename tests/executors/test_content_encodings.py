"""Compressed answers are read as what they hold, and what cannot be read is named (RFC 9110, 8.4)."""

import gzip
import sys
import zlib

import brotli
import pytest

from executors.content_encodings import Undecodable, decoded
from executors.http_wire import Answer, AnswerTooLarge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b'{"choices": [{}]}' * 100
RAW_DEFLATE = zlib.compressobj(wbits=-zlib.MAX_WBITS)


def answer(body: bytes, encoding: str) -> Answer:
    return Answer(200, {"content-encoding": encoding}, body, reusable=True)


ENCODED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "DEFLATE": RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush(),
    "br": brotli.compress(TEXT),
    "zstd": zstd.compress(TEXT),
    "identity": TEXT,
    "br, gzip": gzip.compress(brotli.compress(TEXT)),
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_the_usual_encodings_are_decoded(encoding: str) -> None:
    assert decoded(answer(ENCODED[encoding], encoding), len(TEXT)).body == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_small_body_that_becomes_a_large_one_is_too_large(encoding: str) -> None:
    with pytest.raises(AnswerTooLarge, match=f"more than {len(TEXT) - 1} bytes when its {encoding}"):
        decoded(answer(ENCODED[encoding], encoding), len(TEXT) - 1)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("kept", [0.5, 0.95])
def test_half_of_a_body_is_no_body(encoding: str, kept: float) -> None:
    whole = ENCODED[encoding]
    with pytest.raises(Undecodable, match=f"not in {encoding}"):
        decoded(answer(whole[: int(len(whole) * kept)], encoding), 10_000)


def test_what_is_not_encoded_as_it_says_and_what_nobody_knows_is_named() -> None:
    with pytest.raises(Undecodable, match="not in gzip"):
        decoded(answer(TEXT, "gzip"), 10_000)
    with pytest.raises(Undecodable, match="'compress', and gpuyard decodes br, deflate, gzip"):
        decoded(answer(TEXT, "compress"), 10_000)
