"""Batches for a real vLLM: a pool and its worker, rows that generate so many tokens, and their answers."""

from tests.e2e.rows import counts, custom_ids, lines
from tests.e2e.submitted import Submitted
from tests.e2e.yard import Yard
from tests.vllm.engine import MODEL, VllmServer

TOKENS = 16


def pool_with_worker(yard: Yard, server: VllmServer, name: str, **settings: object) -> str:
    """Make a pool whose only worker, of the same name, has this engine."""
    yard.http.post("/v1/pools", json={"name": name}).raise_for_status()
    yard.worker(name, pool=name, runtime_url=server.url, **settings)
    yard.until_present(name)
    return name


def batch_of(yard: Yard, pool: str, rows: int, *, tokens: int = TOKENS) -> Submitted:
    """Submit rows that differ in their number only."""
    content = lines(
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": MODEL,
                "messages": [{"role": "user", "content": f"row {number}"}],
                "max_tokens": tokens,
                "ignore_eos": True,
            },
        }
        for number in range(rows)
    )
    return yard.submit(content, pool=pool)


def assert_all_answered(batch: Submitted, rows: int, *, tokens: int = TOKENS) -> None:
    """Every row once, in order, and each with all of its tokens."""
    assert counts(batch) == (rows, rows, 0), batch.errors()[:3]
    output = batch.output()
    assert custom_ids(output) == [f"row-{number}" for number in range(rows)]
    assert {line["response"]["body"]["usage"]["completion_tokens"] for line in output} == {tokens}
