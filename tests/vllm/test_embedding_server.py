"""A real vLLM that embeds: its endpoints, its shapes, and what it refuses."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.domain.rows import Reply, Row
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row, run
from tests.vllm.engine import MODEL, VllmServer, executor_for

POOLING = (
    "--runner",
    "pooling",
    "--convert",
    "embed",
    "--max-model-len",
    "2048",
    "--dtype",
    "float32",
    "--enforce-eager",
)


@pytest.fixture(scope="module")
def embedding_server(start_vllm: Callable[..., VllmServer]) -> Iterator[VllmServer]:
    server = start_vllm(kind=POOLING)
    yield server
    server.close()


@pytest.fixture
def embedder(embedding_server: VllmServer) -> Iterator[VLLMExecutor]:
    yield from executor_for(embedding_server)


def embed(executor: VLLMExecutor, what: Any, **fields: Any) -> Reply:
    body = {"model": MODEL, "input": what, **fields}
    return run(executor, Row(1, "one", "/v1/embeddings", MODEL, json.dumps(body).encode()), timeout=60)


def vectors(reply: Reply) -> list[Any]:
    assert reply.ok, (reply.status, reply.error, reply.body)
    return [entry["embedding"] for entry in json.loads(reply.body or b"")["data"]]


def test_it_serves_embeddings_and_no_chat(embedder: VLLMExecutor) -> None:
    endpoints = embedder.probe().endpoints
    assert "/v1/embeddings" in endpoints
    assert "/v1/chat/completions" not in endpoints
    assert run(embedder, chat_row(model=MODEL), timeout=30).status == 404


@pytest.mark.parametrize(
    ("what", "count"),
    [("hello", 1), (["hello", "world"], 2), ([5, 6, 7], 1), ([[5, 6], [7]], 2), (["x"] * 512, 512)],
    ids=["text", "texts", "token ids", "lists of token ids", "512 texts"],
)
def test_an_input_is_text_or_token_ids_one_or_many(embedder: VLLMExecutor, what: Any, count: int) -> None:
    reply = embed(embedder, what)
    found = vectors(reply)
    assert len(found) == count
    assert all(isinstance(vector, list) and isinstance(vector[0], float) for vector in found)
    assert reply.usage.input_tokens > 0


def test_base64_is_answered_in_base64(embedder: VLLMExecutor) -> None:
    assert isinstance(vectors(embed(embedder, "hello", encoding_format="base64"))[0], str)


@pytest.mark.parametrize(
    ("what", "fields"),
    [([], {}), ("", {}), ("word " * 20_000, {}), ("hello", {"dimensions": 7})],
    ids=["no inputs", "empty", "too long", "dimensions"],
)
def test_what_it_refuses_is_the_rows_own_fault(embedder: VLLMExecutor, what: Any, fields: dict[str, Any]) -> None:
    reply = embed(embedder, what, **fields)
    assert reply.error is None
    assert reply.status == 400
