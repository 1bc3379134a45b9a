"""Send a JSONL file as a batch with the official `openai` package and print one answer a line.

Usage: python examples/submit_openai.py FILE

OPENAI_BASE_URL and OPENAI_API_KEY say where to and as whom; nothing in this file knows gpuyard.
"""

import json
import sys
import time
from pathlib import Path

from openai import OpenAI
from openai.types import Batch

ENDED = ("completed", "failed", "cancelled", "expired")


def run(client: OpenAI, path: Path, *, poll_seconds: float = 1) -> Batch:
    """Upload `path`, make a batch of it, show how far it is, and give it back when it has ended, whatever the end."""
    with path.open("rb") as content:
        uploaded = client.files.create(file=content, purpose="batch")
    batch = client.batches.create(input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h")
    shown = ""
    while batch.status not in ENDED:
        shown = show(batch, shown)
        time.sleep(poll_seconds)
        batch = client.batches.retrieve(batch.id)
    show(batch, shown)
    return batch


def show(batch: Batch, before: str) -> str:
    """Write a progress line to standard error when it says something new, and return it."""
    line = f"{batch.id} {batch.status}"
    if batch.request_counts and batch.request_counts.total:
        counts = batch.request_counts
        line += f"  {counts.completed + counts.failed}/{counts.total} rows, {counts.failed} failed"
    if line != before:
        print(line, file=sys.stderr, flush=True)
    return line


def answers(client: OpenAI, batch: Batch) -> dict[str, str]:
    """Give each row's answer by its custom_id, in the order of the input. Rows that failed are not among them."""
    if batch.output_file_id is None:
        return {}
    rows = map(json.loads, client.files.content(batch.output_file_id).content.splitlines())
    return {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"].strip() for row in rows}


def failures(client: OpenAI, batch: Batch) -> list[str]:
    """Say what went wrong, one line each: with the whole file (its errors), or with single rows (the error file)."""
    whole = batch.errors.data if batch.errors and batch.errors.data else []
    lines = [f"line {error.line}: {error.message}" if error.line else str(error.message) for error in whole]
    if batch.error_file_id is not None:
        rows = map(json.loads, client.files.content(batch.error_file_id).content.splitlines())
        lines += [f"{row['custom_id']}: {row['error'] or row['response']['body']}" for row in rows]
    return lines


def main() -> int:
    """Exit 0 when every row has an answer."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program's own name, and the file
        print("Usage: submit_openai.py FILE", file=sys.stderr)
        return 1
    client = OpenAI()
    batch = run(client, Path(sys.argv[1]))
    for custom_id, answer in answers(client, batch).items():
        print(f"{custom_id}: {' '.join(answer.split())}")
    problems = failures(client, batch)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 0 if batch.status == "completed" and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
