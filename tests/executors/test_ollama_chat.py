"""A chat in Ollama's words and its answer in OpenAI's, judged by what a fake server was sent and what came back."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.rows import Row, RowErrorCode
from tests.executors.ollama import CHAT, COMPLETIONS, Ollama, answer_of, error_of
from tests.executors.running import run

Start = Callable[..., Ollama]
PNG = "iVBORw0KGgo="
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call_9", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}


def test_an_answer_has_every_field_of_openais(server: Ollama) -> None:
    reply = server.chat("Hi there [[x]]", max_tokens=50)
    answer = answer_of(reply)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "mock"
    assert answer["id"].startswith("chatcmpl-")
    assert isinstance(answer["created"], int)
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "answer [[x]] \u00e9\u2028"},
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (3, 3, 6)


def test_plain_messages_go_on_as_they_are_written_and_nothing_is_added_to_them(server: Ollama) -> None:
    server.chat()
    (sent,) = server.sent(CHAT)
    assert sent == {
        "model": "mock",
        "messages": [{"role": "user", "content": "Hi [[x]]"}],
        "stream": False,
        "truncate": False,
        "shift": False,
    }


def test_an_answer_that_is_cut_by_max_tokens_says_length(server: Ollama) -> None:
    answer = answer_of(server.chat(max_tokens=2))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2
    assert server.sent(CHAT)[0]["options"] == {"num_predict": 2}


def test_the_newer_name_of_max_tokens_wins(server: Ollama) -> None:
    server.chat(max_completion_tokens=3, max_tokens=None)
    assert server.sent(CHAT)[0]["options"] == {"num_predict": 3}


def test_numbers_reach_ollama_as_they_were_written(server: Ollama) -> None:
    body = b'{"model":"mock","messages":[{"role":"user","content":"x"}],"temperature":0.30000000000000004,"seed":7}'
    assert run(server.executor, Row(1, "a", CHAT, "mock", body)).ok
    assert server.sent(CHAT)[0]["options"] == {"temperature": 0.30000000000000004, "seed": 7}


def test_what_v1_cannot_carry_goes_through(server: Ollama) -> None:
    server.chat(options={"num_ctx": 8192, "temperature": 0.1}, temperature=0.9, keep_alive="30m", think=False)
    (sent,) = server.sent(CHAT)
    assert sent["options"] == {"temperature": 0.1, "num_ctx": 8192}
    assert (sent["keep_alive"], sent["think"]) == ("30m", False)


@pytest.mark.parametrize(("stop", "sent"), [("END", ["END"]), (["A", "B"], ["A", "B"])])
def test_stop_is_a_list_for_ollama(server: Ollama, stop: object, sent: list[str]) -> None:
    server.chat(stop=stop)
    assert server.sent(CHAT)[0]["options"]["stop"] == sent


def test_parts_become_one_text_and_its_images(server: Ollama) -> None:
    parts = [
        {"type": "text", "text": "What is"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
        {"type": "text", "text": "this?"},
    ]
    assert "1 images" in answer_of(server.chat(parts))["choices"][0]["message"]["content"]
    assert server.sent(CHAT)[0]["messages"] == [{"role": "user", "content": "What is\nthis?", "images": [PNG]}]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "messages.image_url"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "messages.input_audio"),
        ({"type": "file", "file": {}}, "messages.file"),
    ],
)
def test_a_part_that_ollama_cannot_take_fails_the_row_by_name(server: Ollama, part: dict[str, Any], name: str) -> None:
    reply = server.chat([part])
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER
    assert name in reply.error.message
    assert server.sent(CHAT) == []


def test_tool_calls_and_their_results_are_told_as_objects(server: Ollama) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "call_9", "content": "sunny"},
    ]
    answer_of(server.ask(CHAT, messages=messages, tools=[TOOL]))
    (sent,) = server.sent(CHAT)
    assert sent["tools"] == [TOOL]
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Paris"}}, "id": "call_9"}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "call_9", "tool_name": "weather"},
    ]


def test_a_call_of_a_tool_comes_back_as_openai_writes_it(server: Ollama) -> None:
    choice = answer_of(server.chat("{{tool}}", tools=[TOOL]))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert (call["id"], call["type"], call["function"]["name"]) == ("call_1", "function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Par\u00eds", "days": 2}


def test_with_tool_choice_none_ollama_is_told_of_no_tool(server: Ollama) -> None:
    answer_of(server.chat(tools=[TOOL], tool_choice="none"))
    assert "tools" not in server.sent(CHAT)[0]


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("response_format", "sent"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, "json"),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}, SCHEMA),
    ],
)
def test_a_form_of_the_answer_is_a_format(server: Ollama, response_format: dict[str, Any], sent: object) -> None:
    content = answer_of(server.chat(response_format=response_format))["choices"][0]["message"]["content"]
    assert server.sent(CHAT)[0].get("format") == sent
    if sent == SCHEMA:
        assert json.loads(content) == {"name": "[[x]]"}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning": {"effort": "low"}}, "low"),
        ({"think": True}, True),
    ],
)
def test_reasoning_is_thinking_and_comes_back_beside_the_content(
    server: Ollama, fields: dict[str, Any], sent: object
) -> None:
    message = answer_of(server.chat(model="think", **fields))["choices"][0]["message"]
    assert server.sent(CHAT)[0]["think"] == sent
    assert message.get("reasoning") == (f"because of {sent}" if sent else None)


def test_log_probabilities_have_openais_shape(server: Ollama) -> None:
    choice = answer_of(server.chat(logprobs=True, top_logprobs=2))["choices"][0]
    first = choice["logprobs"]["content"][0]
    assert (first["token"], first["bytes"]) == ("answer", list(b"answer"))
    assert [other["token"] for other in first["top_logprobs"]] == ["answer0", "answer1"]


def test_an_old_ollama_that_knows_no_log_probabilities_says_so_itself(ollama: Start) -> None:
    old = ollama("--version", "0.12.10")
    assert "logprobs" not in old.executor.unsupported(CHAT)
    old.executor.probe()
    assert {"logprobs", "top_logprobs"} <= old.executor.unsupported(CHAT)


@pytest.mark.parametrize(("version", "takes"), [("0.4.7", False), ("0.5.0", True), ("0.5.0-rc1", True)])
def test_an_old_ollama_that_knows_no_schema_says_so_itself(ollama: Start, version: str, takes: bool) -> None:
    old = ollama("--version", version)
    old.executor.probe()
    schemas = {"response_format.json_schema", "format.json_schema"}
    assert schemas.isdisjoint(old.executor.unsupported(CHAT)) == takes
    assert (schemas <= old.executor.unsupported(COMPLETIONS)) == (not takes)


def test_a_conversation_longer_than_the_context_is_refused_and_cut_only_where_that_is_allowed(ollama: Start) -> None:
    long = "word " * 20
    reply = ollama("--context", 10).chat(long)
    assert reply.status == 400
    assert error_of(reply) == {
        "message": "the input length exceeds the context length",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    cutting = ollama("--context", 10, ollama_truncate=True)
    assert answer_of(cutting.chat(long))["usage"]["prompt_tokens"] == 10
    assert answer_of(ollama("--context", 10).chat(long, truncate=True))["usage"]["prompt_tokens"] == 10


def test_a_refusal_keeps_ollamas_status_and_words(server: Ollama) -> None:
    reply = server.chat(model="nope")
    assert reply.status == 404
    assert error_of(reply)["message"] == 'model "nope" not found, try pulling it first'
    assert error_of(reply)["type"] == "not_found_error"
    reply = server.chat(reasoning_effort="high")
    assert (reply.status, error_of(reply)["message"]) == (400, '"mock" does not support thinking')


@pytest.mark.parametrize("messages", [[], "hi", [7], None])
def test_what_is_no_chat_is_left_to_ollamas_own_v1_to_refuse(server: Ollama, messages: object) -> None:
    reply = server.ask(CHAT, messages=messages)
    assert reply.status == 400
    assert error_of(reply)["type"] == "invalid_request_error"
    assert server.process.stats()["requests"] == {CHAT: 1}


def test_a_lone_surrogate_breaks_nothing(server: Ollama) -> None:
    body = b'{"model":"mock","messages":[{"role":"user","content":[{"type":"text","text":"\\ud800 [[y]]"}]}]}'
    assert b"[[y]]" in (run(server.executor, Row(1, "a", CHAT, "mock", body)).body or b"")


def test_responses_stay_on_v1(server: Ollama) -> None:
    answer = answer_of(server.ask("/v1/responses", input="Hi [[r]]"))
    assert "[[r]]" in answer["output"][0]["content"][0]["text"]
    assert server.process.stats()["requests"] == {"/v1/responses": 1}


def test_a_speakers_name_is_refused_rather_than_lost(server: Ollama) -> None:
    reply = server.ask(CHAT, messages=[{"role": "user", "name": "Ann", "content": "Hi"}])
    assert reply.error is not None
    assert "messages.name" in reply.error.message
