"""Each line of the parameter table's Ollama column is true of what the fake server is sent (R-23)."""

from typing import Any

import pytest

from app.domain.parameter_table import TABLE, Parameter, Way
from app.domain.rows import Reply, RowErrorCode
from tests.executors.ollama import CHAT, COMPLETIONS, EMBEDDINGS, Ollama, answer_of

NEEDED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    COMPLETIONS: {"prompt": "Hi"},
    EMBEDDINGS: {"input": "Hi"},
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
VALUES: dict[str, Any] = {
    "dimensions": 4,
    "encoding_format": "base64",
    "format": "json",
    "images": ["iVBORw0KGgo="],
    "input": "Hi",
    "keep_alive": "5m",
    "messages": NEEDED[CHAT]["messages"],
    "metadata": {"a": "b"},
    "model": "think",
    "options": {"num_ctx": 2048},
    "prompt": "Hi",
    "raw": True,
    "reasoning": {"effort": "high"},
    "reasoning_effort": "high",
    "response_format": {"type": "json_object"},
    "shift": True,
    "stop": ["END"],
    "stream": False,
    "stream_options": None,
    "suffix": "end",
    "system": "Be brief.",
    "template": "{{ .Prompt }}",
    "think": True,
    "tools": [TOOL],
    "truncate": True,
}
"""A value to send of each parameter; a number where none is named."""

BECOMES: dict[tuple[str, str], dict[str, Any]] = {
    (CHAT, "reasoning"): {"think": "high"},
    (CHAT, "reasoning_effort"): {"think": "high"},
    (CHAT, "response_format"): {"format": "json"},
    (COMPLETIONS, "logprobs"): {"logprobs": True, "top_logprobs": 2},
    (COMPLETIONS, "response_format"): {"format": "json"},
}
"""What a translated value is for Ollama, where it is not the same."""

ALL = [
    pytest.param(endpoint, parameter, id=f"{endpoint} {parameter.name}")
    for endpoint in NEEDED
    for parameter in TABLE[endpoint].values()
    if "." not in parameter.name
]


def value_of(parameter: Parameter, endpoint: str) -> Any:
    if parameter.name in {"logprobs", "top_logprobs"}:
        return True if (parameter.name, endpoint) == ("logprobs", CHAT) else 2
    return VALUES.get(parameter.name, 3)


def send(server: Ollama, endpoint: str, name: str, value: object) -> Reply:
    return server.ask(endpoint, **({"model": "think", **NEEDED[endpoint]} | {name: value}))


@pytest.mark.parametrize(("endpoint", "parameter"), ALL)
def test_a_parameter_reaches_ollama_as_the_table_says(server: Ollama, endpoint: str, parameter: Parameter) -> None:
    name, value = parameter.name, value_of(parameter, endpoint)
    way, words = parameter.support["ollama"]
    reply = send(server, endpoint, name, value)
    if way is Way.UNSUPPORTED:
        assert reply.error is not None
        assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER
        assert f"'{name}'" in reply.error.message
        assert server.sent(endpoint) == []
        return
    answer = answer_of(reply)
    (sent,) = server.sent(endpoint)
    if way is Way.NATIVE:
        assert sent[name] == value
    elif way is Way.NO_MEANING:
        assert sent.get(name) in {None, False}
    elif words.startswith("options."):
        assert sent["options"] == {words.removeprefix("options."): value}
    elif name == "encoding_format":
        assert name not in sent
        assert isinstance(answer["data"][0]["embedding"], str)
    else:
        assert {word: sent[word] for word in words.split(", ")} == BECOMES.get((endpoint, name), {words: value})


@pytest.mark.parametrize(("endpoint", "parameter"), ALL)
def test_null_and_what_asks_for_nothing_are_taken(server: Ollama, endpoint: str, parameter: Parameter) -> None:
    if parameter.essential:
        return
    for plain in (None, *parameter.plain):
        assert send(server, endpoint, parameter.name, plain).ok, plain


@pytest.mark.parametrize("endpoint", NEEDED)
def test_a_parameter_that_nobody_knows_is_refused(server: Ollama, endpoint: str) -> None:
    reply = send(server, endpoint, "zzz", 1)
    assert reply.error is not None
    assert (reply.error.code, "'zzz'" in reply.error.message) == (RowErrorCode.UNSUPPORTED_PARAMETER, True)


@pytest.mark.parametrize("endpoint", NEEDED)
def test_the_executor_tells_what_the_table_says(server: Ollama, endpoint: str) -> None:
    told = server.executor.unsupported(endpoint)
    for name, parameter in TABLE[endpoint].items():
        assert (name in told) is (parameter.support["ollama"].way is Way.UNSUPPORTED)
