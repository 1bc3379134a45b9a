"""The fake Ollama is one for the official client: what that accepts, the executor may be tested against."""

from collections.abc import Iterator

import ollama
import pytest

from tests.executors.ollama import Ollama
from tests.fakes.ollama_engine import vector


@pytest.fixture
def client(server: Ollama) -> Iterator[ollama.Client]:
    client = ollama.Client(server.process.url)
    yield client
    client.close()


def test_it_lists_shows_and_pulls(client: ollama.Client) -> None:
    assert "mock:latest" in [model.model for model in client.list().models]
    assert client.show("mock").details is not None
    statuses = [line.status for line in client.pull("good", stream=True)]
    assert (statuses[0], statuses[-1]) == ("pulling manifest", "success")
    assert "good:latest" in [model.model for model in client.list().models]


def test_it_chats_and_lists_what_is_loaded(client: ollama.Client) -> None:
    message = {"role": "user", "content": "Hi [[x]]"}
    answer = client.chat("think", [message], think="high", logprobs=True, top_logprobs=1, options={"num_predict": 2})
    assert answer.message.content == "answer [[x]]"
    assert answer.message.thinking == "because of high"
    assert (answer.done, answer.done_reason, answer.eval_count) == (True, "length", 2)
    assert answer.logprobs is not None
    assert answer.logprobs[0].token == "answer"  # noqa: S105 - a word
    assert "think:latest" in [model.model for model in client.ps().models]
    (streamed,) = client.chat("mock", [message], stream=True)
    assert streamed.message.content == answer_text()


def answer_text() -> str:
    return "answer [[x]] \u00e9\u2028"


def test_it_generates_and_embeds(client: ollama.Client) -> None:
    assert client.generate("mock", "Hi [[x]]").response == answer_text()
    assert client.generate("mock", "").done_reason == "load"
    embedded = client.embed("embed", ["a", "b c"])
    assert [list(one) for one in embedded.embeddings] == [vector("a"), vector("b c")]
    assert embedded.prompt_eval_count == 3
    assert client.embed("embed", []).embeddings == []


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (["a", "{{nan}}"], 400, "embedding contains NaN or Inf values"),
        (["a", "{{bad}}"], 400, "input exceeds maximum context length and cannot be truncated further"),
        (["{{status=503}}"], 503, "told to answer 503"),
    ],
)
def test_one_bad_text_fails_a_whole_list(client: ollama.Client, given: list[str], status: int, text: str) -> None:
    with pytest.raises(ollama.ResponseError) as caught:
        client.embed("embed", given)
    assert (caught.value.status_code, caught.value.error) == (status, text)


def test_a_model_that_is_not_there_and_a_pull_that_breaks_off_are_errors(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat("nope", [{"role": "user", "content": "Hi"}])
    assert (caught.value.status_code, caught.value.error) == (404, 'model "nope" not found, try pulling it first')
    with pytest.raises(ollama.ResponseError, match="max retries exceeded"):
        list(client.pull("hopeless", stream=True))
