"""What a row asks reaches the runtime byte for byte, and what the runtime answers reaches the row so."""

import base64
import hashlib
import json
import random

import pytest

from app.domain.rows import Row
from executors.error_bodies import misses_model
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import run
from tests.fakes.runtime_process import RuntimeProcess

IMAGE = "data:image/png;base64," + base64.b64encode(random.Random(3).randbytes(1_500_000)).decode()
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": True}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Paris"}'}}


def body_of(**fields: object) -> bytes:
    return json.dumps({"model": "mock", **fields}, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        pytest.param(
            "/v1/chat/completions",
            body_of(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}]),
            id="an image",
        ),
        pytest.param("/v1/chat/completions", body_of(messages=[], response_format=SCHEMA), id="a schema"),
        pytest.param("/v1/chat/completions", body_of(messages=[], tools=[TOOL], tool_choice="auto"), id="tools"),
        pytest.param("/v1/chat/completions", body_of(messages=[], reasoning_effort="low", think=True), id="thinking"),
        pytest.param("/v1/chat/completions", b'{ "model":"mock" ,\t"messages":[], "temperature":1.0e0}', id="spaces"),
        pytest.param(
            "/v1/chat/completions", b'{"model":"mock","messages":[],"seed":12345678901234567890}', id="digits"
        ),
        pytest.param("/v1/chat/completions", body_of(messages=[{"role": "user", "content": "Grüße 😀"}]), id="letters"),
        pytest.param("/v1/completions", body_of(prompt=[[1, 2], [3]], n=1), id="prompts of tokens"),
        pytest.param("/v1/embeddings", body_of(input=[1, 2, 3]), id="an input of tokens"),
    ],
)
def test_a_body_is_sent_as_it_stands(vllm: VLLMExecutor, mock: RuntimeProcess, endpoint: str, body: bytes) -> None:
    run(vllm, Row(1, "row-1", endpoint, "mock", body))
    assert mock.stats()["body_sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "42", "reasoning_content": "6 times 7"},
        {"role": "assistant", "content": '{"city": "Paris"}', "refusal": None, "annotations": []},
    ],
    ids=["a call of a tool", "a thought", "JSON"],
)
def test_an_answer_is_kept_as_it_came(vllm: VLLMExecutor, message: dict[str, object]) -> None:
    answer = json.dumps({"model": "mock", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    row = body_of(messages=[], user=f"raw={answer}".replace("\\", "\\\\"))
    reply = run(vllm, Row(1, "row-1", "/v1/chat/completions", "mock", row))
    assert reply.ok
    assert reply.body == answer.encode()


@pytest.mark.parametrize(
    ("status", "body", "misses"),
    [
        (404, b"anything", True),
        (400, b'{"error":{"message":"could not find real modelID for m-1"}}', True),
        (400, b'{"error":{"message":"Invalid model name passed in model=m-1. Call `/v1/models`"}}', True),
        (400, b'{"detail":"Server is pinned to another, but the request asked for m-1"}', True),
        (400, b'{"error":{"message":"m-1 cannot do that: temperature is too high"}}', False),
        (400, b'{"error":{"message":"no such tool"}}', False),
        (500, b'{"error":{"message":"m-1 not found"}}', False),
        (200, b'{"choices":[{"text":"m-1 not found"}]}', False),
    ],
)
def test_an_answer_that_may_say_that_the_model_is_gone(status: int, body: bytes, misses: bool) -> None:
    assert misses_model(status, body, "m-1") is misses
