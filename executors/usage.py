"""Tokens as any runtime counts them."""

from typing import Annotated, Any

import msgspec

from app.domain.rows import Usage

MAX_COUNT = 2**53
"""Larger counts are nonsense and must not overflow a column."""
_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """What nearly every answer has: anything else takes a closer look."""

    prompt_tokens: _Tokens
    total_tokens: _Tokens
    completion_tokens: _Tokens = 0
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


_plain = msgspec.json.Decoder(_Plain)


def usage_of(raw: bytes) -> Usage:
    """Read a `usage` of chat, completions, embeddings or responses. Whatever makes no sense counts as zero."""
    try:
        plain = _plain.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return _odd_usage(raw)
    total = plain.total_tokens or plain.prompt_tokens + plain.completion_tokens
    return Usage(plain.prompt_tokens, 0, plain.completion_tokens, 0, total)


def _odd_usage(raw: bytes) -> Usage:
    try:
        usage = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return Usage()
    if not isinstance(usage, dict):
        return Usage()
    total_input = _count(usage, "prompt_tokens") or _count(usage, "input_tokens")
    total_output = _count(usage, "completion_tokens") or _count(usage, "output_tokens")
    read = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    written = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    return Usage(
        input_tokens=total_input,
        cached_tokens=_count(read, "cached_tokens"),
        output_tokens=total_output,
        reasoning_tokens=_count(written, "reasoning_tokens"),
        total_tokens=_count(usage, "total_tokens") or total_input + total_output,
    )


def _count(counts: Any, key: str) -> int:
    value = counts.get(key) if isinstance(counts, dict) else None
    # `type`, because True is an int
    return value if type(value) is int and 0 <= value < MAX_COUNT else 0
