"""Answers that are not what their rows asked for count as answered, and the batch says how many there are."""

import json
from collections.abc import Callable

from openai import OpenAI

from app.domain.rows import Reply
from tests.fakes.steered_executor import SteeredExecutor
from tests.served import Served
from tests.working import StartWorker, ended, sdk, served, start_worker, submit_content

__all__ = ["sdk", "served", "start_worker"]


def saying(text: str, model: str = "fake") -> Callable[[], Reply]:
    answer = {"model": model, "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    return lambda: Reply(status=200, body=json.dumps(answer).encode(), request_id="req_1")


def test_the_batch_counts_answers_off_format_and_of_another_model(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    lines = []
    for number in range(24):
        body = {"model": "fake", "messages": [{"role": "user", "content": "a"}]}
        if number < 12:
            body["response_format"] = {"type": "json_object"}
        lines.append({"custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})
    runtime = SteeredExecutor()
    for number in range(24):
        text = "{}" if number % 4 else "Sure! {}"
        runtime.answers[number] = saying(text, "fake" if number % 6 else "smaller")
    runtime.let_all()
    start_worker("gpu-1", runtime)
    batch = submit_content(sdk, served, "".join(json.dumps(line) + "\n" for line in lines).encode())
    batch = ended(sdk, served, batch.id)
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (24, 0)
    with served.http() as http:
        ours = http.get(f"/v1/batches/{batch.id}").json()["gpuyard"]
    assert (ours["answers_off_format"], ours["answers_other_model"]) == (3, 4)
