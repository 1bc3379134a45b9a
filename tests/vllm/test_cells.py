"""What a real vLLM says to rows, cell by cell of what was observed of it, and what our executor makes of that."""

import json
from typing import Any

import pytest

from app.domain.rows import Reply, Row
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row, run
from tests.vllm.engine import MODEL

COMPILE_SECONDS = 90
"""The first row with logprobs has vLLM compile something."""


def ask(
    executor: VLLMExecutor, text: str = "hello", *, model: str = MODEL, seconds: float = 60, **fields: Any
) -> Reply:
    return run(executor, chat_row(text, model=model, **{"max_tokens": 8} | fields), timeout=seconds)


def answer(reply: Reply) -> dict[str, Any]:
    assert reply.ok, (reply.status, reply.error, reply.body)
    found: dict[str, Any] = json.loads(reply.body or b"")
    return found


def refusal(reply: Reply) -> dict[str, Any]:
    """The error of a row that the engine answered itself."""
    assert reply.error is None
    found: dict[str, Any] = json.loads(reply.body or b"")["error"]
    return found


def test_it_is_known_for_a_vllm_by_its_version_and_its_models(executor: VLLMExecutor) -> None:
    facts = executor.probe()
    assert executor.is_vllm()
    assert (facts.version or "").startswith("0.32.0")
    assert [model.id for model in facts.models] == [MODEL]


def test_a_generating_server_serves_no_embeddings(executor: VLLMExecutor) -> None:
    endpoints = executor.probe().endpoints
    assert {"/v1/chat/completions", "/v1/completions"} <= set(endpoints)
    assert "/v1/embeddings" not in endpoints


def test_an_unknown_model_is_404(executor: VLLMExecutor) -> None:
    reply = ask(executor, model="nope")
    assert reply.status == 404
    assert refusal(reply)["type"] == "NotFoundError"


def test_a_prompt_beyond_the_context_is_400_at_once(executor: VLLMExecutor) -> None:
    reply = ask(executor, "word " * 20_000)
    assert reply.status == 400
    assert "maximum context length" in refusal(reply)["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 100_000},
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"messages": []},
        {"temperature": 9},
        {"temperature": "hot"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
    ],
    ids=lambda fields: json.dumps(fields)[:50],
)
def test_what_it_refuses_is_the_rows_own_fault(executor: VLLMExecutor, fields: dict[str, Any]) -> None:
    reply = ask(executor, **fields)
    assert reply.status == 400
    assert refusal(reply)["message"]


@pytest.mark.parametrize("fields", [{"zzz": 1}, {"messages": [{"role": "wizard", "content": "hi"}]}])
def test_what_it_does_not_mind(executor: VLLMExecutor, fields: dict[str, Any]) -> None:
    assert ask(executor, **fields).status == 200


def test_two_choices_are_two_and_their_tokens_are_summed(executor: VLLMExecutor) -> None:
    reply = ask(executor, n=2, ignore_eos=True)
    assert len(answer(reply)["choices"]) == 2
    assert reply.usage.output_tokens == 16


def test_structured_output_obeys_its_schema(executor: VLLMExecutor) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}}}
    said = answer(ask(executor, max_tokens=400, temperature=0, response_format=wanted))["choices"][0]
    assert json.loads(said["message"]["content"]) in {"yes", "no"}, said


def test_logprobs_come_with_each_token(executor: VLLMExecutor) -> None:
    reply = ask(executor, seconds=COMPILE_SECONDS, logprobs=True, top_logprobs=2, ignore_eos=True)
    tokens = answer(reply)["choices"][0]["logprobs"]["content"]
    assert len(tokens) == 8
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)


@pytest.mark.parametrize("prompt", ["once upon", [5, 6, 7], [[5, 6, 7], [8, 9]]], ids=["text", "tokens", "two"])
def test_a_prompt_is_text_or_token_ids(executor: VLLMExecutor, prompt: Any) -> None:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4}
    reply = run(executor, Row(1, "one", "/v1/completions", MODEL, json.dumps(body).encode()))
    assert len(answer(reply)["choices"]) == (2 if isinstance(prompt[0], list) else 1)


def test_text_of_any_script_goes_in_and_out(executor: VLLMExecutor) -> None:
    assert ask(executor, "日本 \u2028 \U0001f600").status == 200


def test_a_lone_surrogate_costs_its_own_row_only(executor: VLLMExecutor) -> None:
    assert ask(executor, "emoji \ud83d").status == 400
