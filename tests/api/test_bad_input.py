"""Whatever a caller sends, as schemathesis makes it up from our OpenAPI: no 5xx, no hang, OpenAI's envelope.

The API is a real process on a real socket, and each kind of key asks. What is sent is the same in every run
(`derandomize`); GPUYARD_TEST_EXAMPLES makes it more. A failure is printed with the curl command that repeats it.
"""

import os
from collections.abc import Mapping
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.main import create_app
from config.settings import ServerSettings
from tests.api_target import Target, bounded

EXAMPLES = int(os.environ.get("GPUYARD_TEST_EXAMPLES", "12"))
ANSWER_SECONDS = 15.0
"""No honest answer takes as long, on a machine as busy as it may be; a poll is asked not to wait."""
SCHEMA = schemathesis.openapi.from_dict(create_app(ServerSettings()).openapi())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


def openais_envelope(ctx: Any, response: Any, case: Any) -> None:
    """Every error is OpenAI's: message, type, param and code, and no further word."""
    if response.status_code < 400 or case.operation.method.upper() == "HEAD":
        return
    error = response.json()
    assert set(error) == {"error"}, error
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert isinstance(error["error"]["message"], str)
    assert isinstance(error["error"]["type"], str)
    assert response.headers["x-request-id"]


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    openais_envelope,
]


def known(value: Any, ids: Mapping[str, Any]) -> Any:
    """The message with ids that exist, where their arguments stand: behind the first door there is more to break."""
    if not isinstance(value, Mapping):
        return value
    return {key: ids.get(key, inner) for key, inner in value.items()}


@pytest.mark.parametrize("label", OPERATIONS)
def test_no_call_is_a_bug_of_ours(target: Target, label: str) -> None:
    operation = OPERATIONS[label]
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode])

    # A stream is read until it ends, which takes longer than all other calls together; SQLite takes nearly anything.
    @bounded(max(3, EXAMPLES // 4) if label.endswith("/events") else EXAMPLES // (1 + (target.kind == "sqlite")))
    @given(cases, st.sampled_from(sorted(target.keys)), st.booleans())
    def ask(case: Any, key: str, is_known: bool) -> None:
        if is_known:
            case.path_parameters = known(case.path_parameters, target.ids)
            case.body = known(case.body, target.ids)
        if label == "POST /workers/poll" and isinstance(case.body, dict):
            case.body = case.body | {"wait_seconds": 0}
        case.headers["Authorization"] = f"Bearer {target.keys[key]}"
        case.call_and_validate(base_url=target.api.url, session=target.session, checks=CHECKS, timeout=ANSWER_SECONDS)

    ask()
