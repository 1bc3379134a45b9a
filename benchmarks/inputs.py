"""Input files of any size, made once, and the check that every row got its own answer."""

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.places import INPUTS

CHAT = "/v1/chat/completions"


class WrongAnswers(Exception):
    """A run that is fast and wrong is not measured."""


def input_file(rows: int, row_bytes: int = 1024) -> Path:
    """Give a file of so many rows of about `row_bytes`, each with a mark of its own; made once."""
    path = INPUTS / f"{rows}x{row_bytes}.jsonl"
    if not path.exists():
        INPUTS.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.writelines(_lines(rows, row_bytes))
        draft.replace(path)
    return path


def _lines(rows: int, row_bytes: int) -> Iterable[bytes]:
    empty = len(_line(0, ""))
    # Prose has spaces and repeats; it is neither all one letter nor random.
    filling = ("the quick brown fox jumps over the lazy dog " * (row_bytes // 44 + 1))[: max(0, row_bytes - empty)]
    return (_line(number, filling) for number in range(rows))


def _line(number: int, filling: str) -> bytes:
    message = {"role": "user", "content": f"[[row-{number}]] {filling}"}
    body = {"model": "mock", "messages": [message], "max_tokens": 128}
    return json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": CHAT, "body": body}).encode() + b"\n"


def check_output(lines: Iterable[bytes], rows: int, *, ordered: bool) -> None:
    """Raise WrongAnswers unless each row stands there once with its own mark, in order where that was promised."""
    seen = bytearray(rows)
    count = 0
    for line in lines:
        answer = json.loads(line)
        number = int(answer["custom_id"].removeprefix("row-"))
        text = answer["response"]["body"]["choices"][0]["message"]["content"]
        if not text.startswith(f"[[row-{number}]]") or seen[number] or (ordered and number != count):
            raise WrongAnswers(f"line {count + 1} is not what it should be: {line[:200]!r}")
        seen[number] = 1
        count += 1
    if count != rows:
        raise WrongAnswers(f"{count} lines for {rows} rows")
