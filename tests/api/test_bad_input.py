"""Whatever a caller sends, as schemathesis makes it up from our OpenAPI: no 5xx, no hang, OpenAI's envelope.

The API is a real process on a real socket, and each kind of key asks. What is sent is the same in every run
(`derandomize`); GPUYARD_TEST_EXAMPLES makes it more. A failure is printed with the curl command that repeats it.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
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
from tests.api_process import ApiProcess, api_process
from tests.databases import PostgresDatabases, SqliteDatabases
from tests.hands import hello
from tests.migrated import migrate
from tests.served import ADMIN_KEY, rows

EXAMPLES = int(os.environ.get("GPUYARD_TEST_EXAMPLES", "12"))
ANSWER_SECONDS = 15.0
"""No honest answer takes as long, on a machine as busy as it may be; a poll is asked not to wait."""
SCHEMA = schemathesis.openapi.from_dict(create_app(ServerSettings()).openapi())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


@dataclass
class Target:
    """A running API in which there is something of everything: keys by scope, and ids by the argument they fit."""

    api: ApiProcess
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)
    session: requests.Session = field(default_factory=requests.Session)

    def fill(self) -> None:
        with httpx.Client(base_url=self.api.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}) as http:
            for scope in ("submit", "read", "worker"):
                made = http.post("/v1/tokens", json={"name": scope, "scopes": [scope]}).json()
                self.keys[scope] = made["secret"]
            self.keys |= {"admin": ADMIN_KEY, "nobody": "gk-nobody"}
            word = hello()
            worker = http.post(
                "/workers/register",
                content=word.model_dump_json(),
                headers={"authorization": f"Bearer {self.keys['worker']}", "content-type": "application/json"},
            ).json()
            file = http.post("/v1/files", files={"file": ("in.jsonl", rows(3))}, data={"purpose": "batch"}).json()
            wanted = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": file["id"]}
            batch = http.post("/v1/batches", json=wanted).json()
        self.ids = {
            "file_id": file["id"],
            "input_file_id": file["id"],
            "batch_id": batch["id"],
            "after": batch["id"],
            "subject": batch["id"],
            "worker_id": worker["worker_id"],
            "boot_id": word.boot_id,
            "x-gpuyard-boot-id": word.boot_id,
            "name": "gpu",
            "pool": "gpu",
            "model_id": "m",
        }


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("api")
    databases = (
        SqliteDatabases(folder, {}, folder)
        if request.param == "sqlite"
        else PostgresDatabases(request.getfixturevalue("postgres_cluster"), {})
    )
    with api_process(databases.copy_of(migrate), folder) as running:
        made = Target(running)
        made.fill()
        yield made
        made.session.close()
        assert b"Traceback" not in running.log.read_bytes(), running.log.read_text()[-4000:]


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

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
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
