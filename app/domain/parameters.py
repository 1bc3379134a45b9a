"""Which parameters of a row not every runtime takes, and whether a runtime takes them (DESIGN 6, R-23).

Validation asks `needed` of every row and a shard keeps the union; who may run it is decided with `refused`. The worker
asks again, row by row, where it has several runtimes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from app.domain.parameter_table import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MANY,
    PASSES_UNKNOWN,
    PLACING,
    TABLE,
    TRANSFERS,
    Parameter,
    Way,
)

MAX_NAMED = 32
"""Parameters that are named one by one of the rows of one model."""
MAX_NAMED_OF_SHARD = 128
MAX_NAME_CHARACTERS = 64

NONE: frozenset[str] = frozenset()
_ALIASES = {"openai": "vllm"}
_PARTS = frozenset(name.partition(".")[2] for name in TABLE[CHAT] if name.startswith("messages."))


def _is_everywhere(parameter: Parameter) -> bool:
    return not parameter.varies and all(support.way is not Way.UNSUPPORTED for support in parameter.support.values())


_EVERYWHERE: Mapping[str, frozenset[str]] = {
    endpoint: frozenset(name for name, parameter in known.items() if _is_everywhere(parameter))
    for endpoint, known in TABLE.items()
}


def needed(endpoint: str, body: Mapping[str, Any]) -> frozenset[str]:
    """Name what a row asks for that some runtime may not take: empty for nearly every row.

    Null and OpenAI's own defaults (`n: 1`) ask for nothing. Names are those of the table, or a row's own words where
    these are at most 64 printable characters; else they count as `MANY`.
    """
    everywhere = _EVERYWHERE.get(endpoint)
    if everywhere is None:
        return NONE
    names = NONE if body.keys() <= everywhere else _asked(endpoint, body, everywhere)
    form = _FORMS.get(endpoint)
    forms = form(body) if form is not None else NONE
    return names | forms if forms else names


def bounded(endpoint: str, names: Collection[str], *, most: int = MAX_NAMED) -> frozenset[str]:
    """Keep what is stored small, however many parameters rows invent: beyond `most` the unknown count as `MANY`."""
    known = TABLE.get(endpoint, {})
    if len(names) <= most or all(name in known for name in names):
        return frozenset(names)
    return frozenset(name for name in names if name in known) | {MANY}


def bounded_by_model(endpoint: str, asked: Mapping[str, frozenset[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Give a shard's parameters by model as they are stored, in order, and small also where it has many models."""
    most = MAX_NAMED if sum(map(len, asked.values())) <= MAX_NAMED_OF_SHARD else 0
    kept = ((model, bounded(endpoint, names, most=most)) for model, names in sorted(asked.items()))
    return tuple((model, tuple(sorted(names))) for model, names in kept)


def unsupported(kind: str, endpoint: str) -> frozenset[str]:
    """Name what a kind of runtime cannot take. A kind that is not in the table takes everything."""
    column = _ALIASES.get(kind, kind)
    if column not in PASSES_UNKNOWN:
        return NONE
    known = TABLE.get(endpoint, {}).values()
    names = frozenset(parameter.name for parameter in known if parameter.support[column].way is Way.UNSUPPORTED)
    return names if PASSES_UNKNOWN[column] else names | {MANY}


def refused(unsupported: Collection[str], endpoint: str, names: Collection[str]) -> frozenset[str]:
    """Give those of `names` that a runtime does not take which told `unsupported`."""
    if not names or not unsupported:
        return NONE
    known: Collection[str] = TABLE.get(endpoint, {}) if MANY in unsupported else names
    return frozenset(name for name in names if name in unsupported or name not in known)


def keys_of(endpoint: str, body: Iterable[str], names: Collection[str]) -> frozenset[str]:
    """Give the keys of a body that are meant by `names`: those that the table does not know may be named `MANY`."""
    known = TABLE.get(endpoint, {})
    return frozenset(key for key in body if _named(key, known) in names)


def parts_of(endpoint: str, names: Collection[str]) -> dict[str, set[str]]:
    """Give by key the members of its value that are meant by `names` of the table."""
    known = TABLE.get(endpoint, {})
    found: dict[str, set[str]] = {}
    for name in names:
        key, _, part = name.partition(".")
        if part and name in known:
            found.setdefault(key, set()).add(part)
    return found


def essential(endpoint: str, names: Collection[str]) -> frozenset[str]:
    """Give those of `names` without which a row makes no sense: they are never left out."""
    known = TABLE.get(endpoint, {})
    return frozenset(name for name in names if name in known and known[name].essential)


def crossing(endpoint: str, names: Collection[str]) -> frozenset[str]:
    """Give those of `names` that reach across requests."""
    known = TABLE.get(endpoint, {})
    return frozenset(name for name in names if name in known and known[name].crosses)


def _asked(endpoint: str, body: Mapping[str, Any], everywhere: frozenset[str]) -> frozenset[str]:
    known = TABLE.get(endpoint, {})
    asked = {
        name: value
        for name, value in body.items()
        if name not in everywhere and value is not None and not (name in known and is_plain(value, known[name].plain))
    }
    forms = [form for name, forms_of in _VALUE_FORMS.items() if name in asked for form in forms_of(asked[name])]
    return frozenset(_named(name, known) for name in asked).union(form for form in forms if form in known)


def _parts_of(name: str, parts: Collection[str]) -> Callable[[object], list[str]]:
    """Make a look for those parts of a parameter that the table names."""

    def find(value: object) -> list[str]:
        return [f"{name}.{part}" for part in parts if part in value] if isinstance(value, dict) else []

    return find


def _schema(asked: object) -> list[str]:
    is_one = isinstance(asked, dict) and asked.get("type") == "json_schema"
    return ["response_format.json_schema"] if is_one else []


def _native_schema(asked: object) -> list[str]:
    return ["format.json_schema"] if isinstance(asked, dict) else []


_VALUE_FORMS: Mapping[str, Callable[[object], list[str]]] = {
    "options": _parts_of("options", PLACING),
    "vllm_xargs": _parts_of("vllm_xargs", TRANSFERS),
    "response_format": _schema,
    "format": _native_schema,
}


def _named(name: str, known: Mapping[str, Parameter]) -> str:
    if name in known and "." not in name:
        return name
    fits = name.isprintable() and name.isascii() and 0 < len(name) <= MAX_NAME_CHARACTERS
    return name if fits and name not in known else MANY


def is_plain(value: object, plain: tuple[object, ...]) -> bool:
    """Tell whether a value is one of `plain`; in JSON, unlike in Python, `true` is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in plain)


def _chat_forms(body: Mapping[str, Any]) -> frozenset[str]:
    """Find parts of messages that are no text, and images that somebody would have to fetch."""
    messages = body.get("messages")
    found: set[str] = set()
    for message in messages if isinstance(messages, list) else ():
        parts = message.get("content") if isinstance(message, dict) else None
        if isinstance(parts, list):
            found.update(f"messages.{part['type']}" for part in parts if _is_special(part))
    return frozenset(found)


def _is_special(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        return False
    if kind != "image_url":
        return True
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return isinstance(url, str) and not url.startswith("data:")


def _completion_forms(body: Mapping[str, Any]) -> frozenset[str]:
    prompt = body.get("prompt")
    if not isinstance(prompt, list):
        return NONE
    return frozenset({"prompt.tokens" if _is_tokens(prompt) else "prompt.list"})


def _embedding_forms(body: Mapping[str, Any]) -> frozenset[str]:
    given = body.get("input")
    return frozenset({"input.tokens"}) if isinstance(given, list) and _is_tokens(given) else NONE


def _is_tokens(given: list[Any]) -> bool:
    """Tell token ids, or lists of them, from texts."""
    return any(not isinstance(one, str) for one in given)


_FORMS: Mapping[str, Callable[[Mapping[str, Any]], frozenset[str]]] = {
    CHAT: _chat_forms,
    COMPLETIONS: _completion_forms,
    EMBEDDINGS: _embedding_forms,
}
