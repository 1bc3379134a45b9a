"""What a real llama.cpp makes of OpenAI's parameters, and that its answers reach a row as they are."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest

from app.domain.rows import Reply, Row, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from executors.runtimes.local import MODEL_ALIAS, LocalExecutor
from tests.executors.running import run

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
QUESTION = [{"role": "user", "content": "Name the capital of France."}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
SECONDS = 200.0  # on a machine that does much else

pytestmark = pytest.mark.timeout(300)


def asked(executor: LocalExecutor, endpoint: str, **body: Any) -> Reply:
    return run(executor, row(endpoint, **body), timeout=SECONDS)


def row(endpoint: str, **body: Any) -> Row:
    content = json.dumps({"model": MODEL_ALIAS, **body}).encode()
    return Row(1, "row-1", endpoint, MODEL_ALIAS, content)


def answered(executor: LocalExecutor, endpoint: str, **body: Any) -> dict[str, Any]:
    reply = asked(executor, endpoint, **body)
    assert reply.ok, str(reply)
    answer: dict[str, Any] = json.loads(reply.body or b"")
    return answer


def test_a_schema_is_enforced(local_executor: LocalExecutor) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    answer = answered(local_executor, CHAT, messages=QUESTION, max_tokens=40, response_format=form)
    assert json.loads(answer["choices"][0]["message"]["content"])["city"] in {"Rome", "Oslo"}


def test_a_schema_that_makes_no_sense_is_the_rows_own_fault(local_executor: LocalExecutor) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "poem", "schema": {"type": "poem"}}}
    assert asked(local_executor, CHAT, messages=QUESTION, max_tokens=4, response_format=form).status == 400


def test_logprobs_come_with_every_token(local_executor: LocalExecutor) -> None:
    answer = answered(local_executor, CHAT, messages=QUESTION, max_tokens=2, logprobs=True, top_logprobs=2)
    content = answer["choices"][0]["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in content] == [2, 2]


def test_two_choices_come_for_n_2(local_executor: LocalExecutor) -> None:
    answer = answered(local_executor, CHAT, messages=QUESTION, max_tokens=1, n=2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


def test_a_stop_ends_the_text(local_executor: LocalExecutor) -> None:
    answer = answered(local_executor, COMPLETIONS, prompt="1 2 3 4 5 6 7", max_tokens=12, temperature=0, stop=["9"])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "9" not in answer["choices"][0]["text"]


def test_tools_are_taken_by_a_model_that_knows_none(local_executor: LocalExecutor) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "look at a city", "parameters": CITY}}
    answer = answered(local_executor, CHAT, messages=QUESTION, max_tokens=2, tools=[tool])
    assert answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("prompt", "choices"), [([504, 3575, 282], 1), (["one", "two"], 2), ([[504], [504]], 2)])
def test_prompts_may_be_tokens_and_many(local_executor: LocalExecutor, prompt: object, choices: int) -> None:
    answer = answered(local_executor, COMPLETIONS, prompt=prompt, max_tokens=1)
    assert len(answer["choices"]) == choices


@pytest.mark.parametrize(("value", "vectors"), [("a cat", 1), (["a cat", "a dog"], 2), ([504, 3575], 1)])
def test_embeddings_may_be_of_texts_and_of_tokens(local_executor: LocalExecutor, value: object, vectors: int) -> None:
    answer = answered(local_executor, EMBEDDINGS, input=value)
    assert [len(entry["embedding"]) for entry in answer["data"]] == [576] * vectors
    assert EMBEDDINGS in local_executor.probe().endpoints


def test_embeddings_come_as_base64(local_executor: LocalExecutor) -> None:
    (entry,) = answered(local_executor, EMBEDDINGS, input="a cat", encoding_format="base64")["data"]
    assert isinstance(entry["embedding"], str)


def test_dimensions_that_llama_cpp_ignores_fail_the_row(local_executor: LocalExecutor) -> None:
    reply = asked(local_executor, EMBEDDINGS, input="a cat", dimensions=8)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.INTERNAL_ERROR
    assert reply.error.message == "asked for dimensions=8, the runtime answered vectors of 576 numbers"


@pytest.mark.parametrize(("max_tokens", "status"), [(0, 200), (-5, 400)])
def test_odd_token_limits_are_answered_as_llama_cpp_does(
    local_executor: LocalExecutor, max_tokens: int, status: int
) -> None:
    assert asked(local_executor, CHAT, messages=QUESTION, max_tokens=max_tokens).status == status


def test_a_field_that_nobody_knows_does_no_harm(local_executor: LocalExecutor) -> None:
    assert asked(local_executor, CHAT, messages=QUESTION, max_tokens=1, zzz=1).ok


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "says"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x y " * 8000}], "max_tokens": 1}, 400, "exceed_context_size"),
        (EMBEDDINGS, {"input": "x y " * 4000}, 500, "too large to process"),
    ],
)
def test_a_prompt_beyond_the_context_fails_at_once_in_llama_cpps_words(
    local_executor: LocalExecutor, endpoint: str, body: dict[str, Any], status: int, says: str
) -> None:
    reply = asked(local_executor, endpoint, **body)
    assert reply.status == status
    assert says in json.dumps(json.loads(reply.body or b"")["error"])


def test_64_rows_at_once_wait_for_its_slots(local_executor: LocalExecutor) -> None:
    with ThreadPoolExecutor(64) as pool:
        replies = list(pool.map(lambda _: asked(local_executor, COMPLETIONS, prompt="a", max_tokens=1), range(64)))
    assert all(reply.ok for reply in replies)


def test_a_cancelled_row_frees_its_slot(local_executor: LocalExecutor) -> None:
    token = CancelToken()
    long = row(COMPLETIONS, prompt="count", max_tokens=1500, ignore_eos=True)

    def cut() -> None:
        with pytest.raises(RowCancelled):
            run(local_executor, long, timeout=SECONDS, cancelled=token)

    thread = Thread(target=cut)
    thread.start()
    wait_for_slots_at_work(local_executor, 1)
    token.cancel()
    thread.join(10)
    wait_for_slots_at_work(local_executor, 0)


def wait_for_slots_at_work(executor: LocalExecutor, count: int) -> None:
    """Look now and then only: llama.cpp notices a closed connection once no other answer was given for a second."""
    end = time.monotonic() + 60
    while True:
        answer = executor.client().get("/slots", deadline=time.monotonic() + 30)
        if sum(slot["is_processing"] for slot in json.loads(answer.body)) == count:
            return
        assert time.monotonic() < end, answer.body
        time.sleep(2)
