"""An OpenAI body in Ollama's own words: what chat, completions and embeddings share.

Every field of a body ends in one of four ways, and none is lost in silence: it stands for itself, it is called by
another name, it asks for nothing, or the row is refused with the field's name. Values are never read where that is
not needed: a number goes on exactly as it was written.
"""

import json
from typing import Any, Final, NamedTuple

import msgspec

from app.domain.parameter_table import TABLE, Way
from app.domain.parameters import is_plain

Fields = dict[str, msgspec.Raw]

RELOADING: Final = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")
"""The options with which Ollama loads a model: another value for one of them loads it anew."""

_fields = msgspec.json.Decoder(Fields)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_DEFAULT_TAG: Final = ":latest"
_OPTION: Final = "options."
_TRUNCATE_NOT: Final = {"truncate": msgspec.Raw(b"false"), "shift": msgspec.Raw(b"false")}


class Refused(Exception):
    """The row asks for what Ollama cannot do. `parameter` is spelled as in OpenAI's API."""

    def __init__(self, parameter: str, message: str | None = None) -> None:
        super().__init__(message or f"Ollama has nothing like {parameter!r} with this value.")
        self.parameter = parameter


class Malformed(Exception):
    """This is no body of the endpoint. Ollama's own /v1 knows best how to say so."""


Reload = tuple[tuple[str, bytes], ...]
"""The options of a request that make Ollama load a model anew, in a form that can be compared."""


class Request(NamedTuple):
    """A request in Ollama's own words."""

    fields: Fields
    reload: Reload

    @property
    def body(self) -> bytes:
        """What goes over the wire."""
        return msgspec.json.encode(self.fields)


def translate(endpoint: str, fields: Fields) -> tuple[Fields, Fields]:
    """Give what stands for itself and what is an option, by app.domain.parameter_table.

    Left to the endpoint is what the table says is translated into anything but an option. Raises Refused for what it
    says is unsupported, unless the value asks for nothing, and for what it does not know.
    """
    known = TABLE[endpoint]
    top: Fields = {}
    options: Fields = {}
    for name, value in fields.items():
        if name not in known or "." in name:
            raise Refused(name)
        way, words = known[name].support["ollama"]
        if way is Way.NATIVE:
            top[name] = value
        elif way is Way.TRANSLATED and words.startswith(_OPTION):
            options[words.removeprefix(_OPTION)] = value
        elif way is Way.UNSUPPORTED and not is_plain(value_of(value), known[name].plain):
            raise Refused(name)
    return top, options


def fields_of(body: bytes) -> Fields:
    """Read a body one level deep, without what is null. Raises Malformed."""
    return {name: value for name, value in read_fields(body).items() if bytes(value) != b"null"}


def read_fields(raw: bytes | msgspec.Raw) -> Fields:
    """Read an object one level deep. Raises Malformed for anything else."""
    try:
        return _fields.decode(raw)
    except msgspec.ValidationError as error:
        raise Malformed(str(error)) from error
    except (msgspec.MsgspecError, RecursionError):
        value = value_of(raw)
    if not isinstance(value, dict):
        raise Malformed("not an object")
    return {name: raw_of(inner) for name, inner in value.items()}


def elements_of(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Read a list one level deep. Raises Malformed for anything else."""
    try:
        return _elements.decode(raw)
    except msgspec.ValidationError as error:
        raise Malformed(str(error)) from error
    except (msgspec.MsgspecError, RecursionError):
        value = value_of(raw)
    if not isinstance(value, list):
        raise Malformed("not a list")
    return [raw_of(one) for one in value]


def value_of(raw: bytes | msgspec.Raw) -> Any:
    r"""Read any JSON value, the lone surrogates (`"\ud800"`) that msgspec refuses among them. Raises Malformed."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from error


def raw_of(value: Any) -> msgspec.Raw:
    """Write any value, lone surrogates among them."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError):
        return msgspec.Raw(json.dumps(value).encode())


def options_of(fields: Fields) -> Fields:
    """Read the native `options` of a body."""
    return fields_of(bytes(fields["options"])) if "options" in fields else {}


def format_of(fields: Fields) -> Fields:
    """Translate `response_format`; a native `format` stands. Raises Refused for a form that OpenAI does not have."""
    if "response_format" not in fields or "format" in fields:
        return {}
    asked = fields_of(bytes(fields["response_format"]))
    kind = value_of(asked["type"]) if "type" in asked else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"format": msgspec.Raw(b'"json"')}
    if kind == "json_schema" and "json_schema" in asked:
        schema = fields_of(bytes(asked["json_schema"])).get("schema")
        if schema is not None:
            return {"format": schema}
    raise Refused("response_format")


def whole(top: Fields) -> Fields:
    """Have Ollama refuse what is longer than its context, which it would cut in silence, and end an answer there."""
    return _TRUNCATE_NOT | top


def finished(fields: Fields, top: Fields, options: Fields) -> Request:
    """Put a native request together; streams are not asked for."""
    options |= options_of(fields)
    if "stop" in options and bytes(options["stop"]).startswith(b'"'):
        options["stop"] = msgspec.Raw(b"[%b]" % bytes(options["stop"]))
    top["stream"] = msgspec.Raw(b"false")
    if options:
        top["options"] = raw_of(options)
    return Request(top, reload_options(options))


def reload_options(options: Fields) -> Reload:
    """Find the options that make Ollama load a model anew."""
    return tuple((name, bytes(options[name])) for name in RELOADING if name in options)


def canonical_model(model: str) -> str:
    """Name a model so that `x` and `x:latest` are one."""
    return model.removesuffix(_DEFAULT_TAG)
