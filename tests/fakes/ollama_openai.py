"""The fake Ollama's own OpenAI-compatible answers."""

from typing import Any

Native = dict[str, Any]


def to_chat(answer: Native) -> Any:
    choice = {"index": 0, "message": answer["message"], "finish_reason": answer["done_reason"]}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": answer["model"], "choices": [choice]} | usage(
        answer
    )


def to_completion(answer: Native) -> Any:
    choice = {"index": 0, "text": answer["response"], "finish_reason": answer["done_reason"]}
    return {"id": "cmpl-1", "object": "text_completion", "model": answer["model"], "choices": [choice]} | usage(answer)


def to_embeddings(answer: Native) -> Any:
    data = [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(answer["embeddings"])]
    return {"object": "list", "data": data, "model": answer["model"]} | usage(answer)


def to_responses(answer: Native) -> Any:
    part = {"type": "output_text", "text": answer["message"]["content"], "annotations": []}
    read, written = answer["prompt_eval_count"], answer["eval_count"]
    return {
        "id": "resp_1",
        "object": "response",
        "model": answer["model"],
        "status": "completed",
        "error": None,
        "output": [{"type": "message", "role": "assistant", "content": [part]}],
        "usage": {"input_tokens": read, "output_tokens": written, "total_tokens": read + written},
    }


def usage(answer: Native) -> Native:
    read, written = answer.get("prompt_eval_count", 0), answer.get("eval_count", 0)
    return {"usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}}
