"""Schemas of strangers: what can be said is said, and nothing takes long or leaves the machine."""

import json
import time
from typing import Any

import pytest

from executors.schemas import MAX_SCHEMA_BYTES, matches

TWICE: dict[str, Any] = {"$ref": "#/$defs/x", "$defs": {"x": {"anyOf": [{"items": {"$ref": "#/$defs/x"}}] * 2}}}
TWICE["$defs"]["x"] = {"allOf": [{"items": {"$ref": "#/$defs/x"}}, {"items": {"$ref": "#/$defs/x"}}]}


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"enum": ["a", "b"]}, "a", True),
        ({"enum": ["a", "b"]}, "c", False),
        ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}]}, [1, "2"], False),
        (True, 1, True),
        (False, 1, False),
        (
            {"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
            {"a" * 40 + "!": 1},
            True,
        ),
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 40 + "!", True),
        ({"type": "person"}, 1, None),
        ({"$ref": "http://127.0.0.1:9/schema"}, 1, None),
        ({"$ref": "file:///etc/passwd"}, 1, None),
        ({"$ref": "#/$defs/missing"}, 1, None),
        ({"$ref": "#"}, 1, None),
        ({"$ref": "#/enum/x", "enum": [1]}, 1, None),
        ({"$id": "http://[", "$ref": "a"}, 1, None),
        ({"multipleOf": 0.01}, float("nan"), None),
        ({"multipleOf": 0.5}, 10**400, None),
        (TWICE, nested(60), None),
        ({"items": {"enum": list(range(3000))}}, [-1] * 3000, False),
        ({"items": {"enum": list(range(3000))}}, [2999] * 3000, None),
        ({"description": "x" * MAX_SCHEMA_BYTES}, 1, None),
    ],
)
def test_what_can_be_said_is_said_soon(schema: object, value: object, said: bool | None) -> None:
    began = time.process_time()
    assert matches(value, json.dumps(schema).encode()) is said
    assert time.process_time() - began < 5
