"""Make a batch of prompts with plain HTTP calls and return at once: something to call from a program of your own.

Usage: python examples/enqueue_batch.py MODEL PROMPT [PROMPT …]

GPUYARD_SERVER_URL (without /v1) and GPUYARD_API_KEY say where to and as whom. Prints the id of the batch; `gpuyard
batch watch ID` follows it.
"""

import json
import os
import sys

import httpx


def rows(model: str, prompts: list[str]) -> bytes:
    """Write the input file: one JSON object a line, as OpenAI's batch API reads it."""
    return b"".join(
        json.dumps(
            {
                "custom_id": f"row-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 64},
            }
        ).encode()
        + b"\n"
        for number, prompt in enumerate(prompts, 1)
    )


def enqueue(client: httpx.Client, content: bytes) -> str:
    """Upload the rows, make a batch of them, and give its id. Raises httpx.HTTPStatusError when the server refuses."""
    uploaded = client.post("/v1/files", files={"file": ("rows.jsonl", content)}, data={"purpose": "batch"})
    uploaded.raise_for_status()
    batch = client.post(
        "/v1/batches",
        json={
            "input_file_id": uploaded.json()["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"from": "enqueue_batch.py"},
        },
    )
    batch.raise_for_status()
    return str(batch.json()["id"])


def main() -> int:
    """Exit 0 with the batch's id on standard output; 1 with the server's words when it refuses."""
    if len(sys.argv) <= 2:  # noqa: PLR2004 - the program's own name, and the model
        print("Usage: enqueue_batch.py MODEL PROMPT [PROMPT …]", file=sys.stderr)
        return 1
    model, *prompts = sys.argv[1:]
    with httpx.Client(
        base_url=os.environ["GPUYARD_SERVER_URL"],
        headers={"Authorization": f"Bearer {os.environ['GPUYARD_API_KEY']}"},
        timeout=30,
    ) as client:
        try:
            print(enqueue(client, rows(model, prompts)))
        except httpx.HTTPStatusError as error:
            print(f"{error.response.status_code}: {error.response.text}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
