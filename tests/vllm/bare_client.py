"""The fastest usual client, to compare with: `python bare_client.py URL MODEL ROWS IN_FLIGHT TOKENS`, by vLLM's Python.

aiohttp, one session, so many rows in flight; prints rows a second. It keeps nothing and promises nothing.
"""

import asyncio
import sys
import time

import aiohttp


async def main(url: str, model: str, rows: int, in_flight: int, tokens: int) -> None:
    """Run the rows and print the rate."""
    numbers = iter(range(rows))

    async def one_after_another(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            body = {
                "model": model,
                "messages": [{"role": "user", "content": f"row {number}"}],
                "max_tokens": tokens,
                "ignore_eos": True,
            }
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                answer.raise_for_status()
                await answer.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        start = time.perf_counter()
        await asyncio.gather(*(one_after_another(session) for _ in range(in_flight)))
        sys.stdout.write(f"{rows / (time.perf_counter() - start)}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *(int(number) for number in sys.argv[3:6])))
