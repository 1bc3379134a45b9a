"""The rules for one line of a batch's input (OPENAI_CONTRACT 1.4, 1.5; B-17, R-23).

A line that breaks a rule is a `BadLine` and fails the batch; a line that is well formed but that no worker may run
(`"stream": true`, a lone surrogate) is a rejected row: that row fails, the others run.

Decided here, where the contract is silent: keys other than the four are ignored; of a repeated key the last one counts,
as in every parser between us and the runtime; integers of any length pass, they are the runtime's to judge.
"""

import json
import re
from typing import Any, NamedTuple

from app.domain.input_errors import InputError, InputErrorCode
from app.domain.lines import Line
from app.domain.members import LONG_INTEGERS, members, refuse_constant
from app.domain.nesting import MAX_DEPTH, nests_too_deeply
from app.domain.parameter_table import EMBEDDINGS
from app.domain.parameters import NONE, needed
from app.domain.rows import RowError, RowErrorCode

MAX_CUSTOM_ID_CHARACTERS = 512
MAX_MODEL_CHARACTERS = 512

_SHOWN_CHARACTERS = 200  # of a user's value inside a message
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_STREAMED = RowError(
    RowErrorCode.UNSUPPORTED_PARAMETER, "'stream' is not supported in a batch: leave it out or send false."
)
_LONE_SURROGATE = RowError(
    RowErrorCode.INVALID_JSON, "The row holds half of a UTF-16 surrogate pair, which is no Unicode text."
)


class BadLine(NamedTuple):
    """A line that breaks rules: all that is wrong with it. `custom_id` is None where it has no good one."""

    errors: tuple[InputError, ...]
    custom_id: str | None = None


class CheckedLine(NamedTuple):
    """A well-formed line. `inputs` counts the embedding inputs (0 on other endpoints).

    `parameters` are what its row asks for that not every runtime takes.
    """

    custom_id: str
    model: str
    inputs: int
    rejected: RowError | None
    parameters: frozenset[str] = NONE


def check_line(line: Line, *, endpoint: str) -> CheckedLine | BadLine:
    """Check one line of a batch for `endpoint`. Never raises, whatever the bytes are."""
    if line.content is None:
        what = f"This line has {line.end - line.start} bytes, more than the limit for one line."
        return BadLine((_invalid(line, None, what),))
    if nests_too_deeply(line.content):
        return _unparseable(line, f"it is nested too deeply: at most {MAX_DEPTH} objects and lists within each other")
    try:
        value = parse_json(line.content)
    except ValueError as error:
        return _unparseable(line, _shown_reason(error))
    except RecursionError:  # only of a caller that stands at the interpreter's own bound
        return _unparseable(line, "it is nested too deeply")
    if not isinstance(value, dict):
        return BadLine((_invalid(line, None, f"A line must be a JSON object, not {_shown(value)}."),))
    return _faults(line, value, endpoint) or _checked(line.content, value, endpoint)


def parse_json(content: bytes) -> Any:
    """Read one JSON value as RFC 8259 has it: UTF-8 only, no NaN, no Infinity, integers of any length.

    Raises ValueError for anything else and RecursionError when it is nested too deeply for this interpreter.
    """
    text = content.decode("utf-8")
    try:
        return _decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer longer than the interpreter converts (or a refused constant, which is refused again).
        return _decode_long_integers(text)


def body_of(content: bytes) -> bytes:
    """Give the bytes of the value of "body" as they stand in a line that `check_line` accepted."""
    text = content.decode("utf-8")
    body = {member.key: text[member.value : member.end] for member in members(text)}["body"]
    return body.encode()


_decode = json.JSONDecoder(parse_constant=refuse_constant).decode
_decode_long_integers = LONG_INTEGERS.decode


def _faults(line: Line, value: dict[str, Any], endpoint: str) -> BadLine | None:
    errors: list[InputError] = []
    custom_id, method, url, body = value.get("custom_id"), value.get("method"), value.get("url"), value.get("body")
    if not isinstance(custom_id, str):
        errors.append(_missing_or_wrong(line, value, "custom_id", "custom_id", "a string"))
        custom_id = None
    elif fault := custom_id_fault(custom_id):
        errors.append(_invalid(line, "custom_id", f"'custom_id' {fault}."))
        custom_id = None
    if not isinstance(method, str):
        errors.append(_missing_or_wrong(line, value, "method", "method", "a string"))
    elif method != "POST":
        errors.append(_invalid(line, "method", f"'method' must be \"POST\", not {_shown(method)}."))
    if not isinstance(url, str):
        errors.append(_missing_or_wrong(line, value, "url", "url", "a string"))
    elif url != endpoint:
        message = f"'url' is {_shown(url)}, and the batch's endpoint is {_shown(endpoint)}: they must be equal."
        errors.append(InputError(InputErrorCode.URL_MISMATCH, message, "url", line.number))
    if not isinstance(body, dict):
        errors.append(_missing_or_wrong(line, value, "body", "body", "a JSON object"))
    elif not isinstance(model := body.get("model"), str):
        errors.append(_missing_or_wrong(line, body, "model", "body.model", "a string"))
    elif fault := model_fault(model):
        errors.append(_invalid(line, "body.model", f"'body.model' {fault}."))
    return BadLine(tuple(errors), custom_id) if errors else None


def _checked(content: bytes, value: dict[str, Any], endpoint: str) -> CheckedLine:
    body = value["body"]
    rejected = None
    if body.get("stream"):
        rejected = _STREAMED
    elif _SURROGATE_ESCAPE.search(content) and _has_lone_surrogate(value):
        rejected = _LONE_SURROGATE
    inputs = _embedding_inputs(body.get("input")) if endpoint == EMBEDDINGS else 0
    return CheckedLine(value["custom_id"], body["model"], inputs, rejected, needed(endpoint, body))


def custom_id_fault(custom_id: str) -> str | None:
    """Say what is wrong with an id, to follow "'custom_id'" in a message; None when nothing is."""
    if not custom_id:
        return "must not be empty"
    if len(custom_id) > MAX_CUSTOM_ID_CHARACTERS:
        return f"has {len(custom_id)} characters; the limit is {MAX_CUSTOM_ID_CHARACTERS}"
    if not custom_id.isascii() and _has_lone_surrogate(custom_id):
        # Nothing could write it as UTF-8 later on, so it is refused while the user can still mend it.
        return f"holds half of a UTF-16 surrogate pair: {_shown(custom_id)}"
    return None


def model_fault(model: str) -> str | None:
    """Say what is wrong with a model's name, in the same way."""
    if not model:
        return "must not be empty"
    if len(model) > MAX_MODEL_CHARACTERS:
        return f"has {len(model)} characters; the limit is {MAX_MODEL_CHARACTERS}"
    # A model's name is stored and shown, unlike a custom_id: a NUL would be refused by PostgreSQL.
    return None if model.isprintable() else f"holds unprintable characters: {_shown(model)}"


def _has_lone_surrogate(value: Any) -> bool:
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):  # cannot be written, so nobody needs to know
        return False
    return False


def _embedding_inputs(given: Any) -> int:
    """Count a string or one list of token ids as 1, a list of either as its length (OPENAI_CONTRACT 1.3)."""
    if not isinstance(given, list) or not given or isinstance(given[0], int | float):
        return 1
    return len(given)


def _missing_or_wrong(line: Line, holder: dict[str, Any], name: str, param: str, wanted: str) -> InputError:
    if name not in holder:
        message = f"Missing required parameter: '{param}'."
        return InputError(InputErrorCode.MISSING_REQUIRED_PARAMETER, message, param, line.number)
    return _invalid(line, param, f"'{param}' must be {wanted}, not {_shown(holder[name])}.")


def _unparseable(line: Line, reason: str) -> BadLine:
    message = f"This line is not parseable as valid JSON. ({reason})"
    return BadLine((InputError(InputErrorCode.INVALID_JSON_LINE, message, None, line.number),))


def _invalid(line: Line, param: str | None, message: str) -> InputError:
    return InputError(InputErrorCode.INVALID_REQUEST, message, param, line.number)


def _shown(value: Any) -> str:
    """Write a user's value for a message: ASCII, short, and never an endless walk through a huge one."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = json.dumps(value[: _SHOWN_CHARACTERS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _shown_reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}"
    return str(error)
