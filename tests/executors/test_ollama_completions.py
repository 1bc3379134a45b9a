"""A completion by /api/generate."""

import pytest

from app.domain.rows import RowErrorCode
from tests.executors.ollama import COMPLETIONS, Ollama, answer_of, error_of


def test_an_answer_has_every_field_of_openais(server: Ollama) -> None:
    answer = answer_of(server.ask(COMPLETIONS, prompt="Hi [[x]]", suffix="end", max_tokens=9, stop="!"))
    assert answer["object"] == "text_completion"
    assert (answer["model"], answer["id"][:5]) == ("mock", "cmpl-")
    assert answer["choices"] == [
        {"index": 0, "text": "answer [[x]] \u00e9\u2028", "logprobs": None, "finish_reason": "stop"}
    ]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert server.sent(COMPLETIONS) == [
        {
            "model": "mock",
            "prompt": "Hi [[x]]",
            "suffix": "end",
            "options": {"num_predict": 9, "stop": ["!"]},
            "stream": False,
            "truncate": False,
            "shift": False,
        }
    ]


def test_raw_and_the_system_text_go_through(server: Ollama) -> None:
    answer_of(server.ask(COMPLETIONS, prompt="Hi", raw=True, system="Be brief."))
    (sent,) = server.sent(COMPLETIONS)
    assert (sent["raw"], sent["system"]) == (True, "Be brief.")


def test_log_probabilities_have_the_older_shape(server: Ollama) -> None:
    (choice,) = answer_of(server.ask(COMPLETIONS, prompt="Hi [[x]]", logprobs=1, max_tokens=2))["choices"]
    assert choice["logprobs"] == {
        "tokens": ["answer", "[[x]]"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"answer0": -0.5}, {"[[x]]0": -0.5}],
        "text_offset": [0, 6],
    }
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(("prompt", "name"), [(["a", "b"], "prompt.list"), ([1, 2], "prompt.tokens")])
def test_several_texts_and_tokens_are_refused(server: Ollama, prompt: object, name: str) -> None:
    reply = server.ask(COMPLETIONS, prompt=prompt)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.UNSUPPORTED_PARAMETER
    assert server.sent(COMPLETIONS) == []


def test_an_unknown_model_is_404(server: Ollama) -> None:
    reply = server.ask(COMPLETIONS, model="nope", prompt="Hi")
    assert (reply.status, error_of(reply)["type"]) == (404, "not_found_error")
