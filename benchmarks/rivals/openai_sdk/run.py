"""The answer most forums give: AsyncOpenAI, a semaphore, and gather over all rows."""

import asyncio
from typing import Any, TextIO

from given import Given, answer_line, read_arguments, rows
from openai import AsyncOpenAI


async def run(given: Given, output: TextIO) -> None:
    client = AsyncOpenAI(base_url=f"{given.url}/v1", api_key="none", timeout=300)
    permits = asyncio.Semaphore(given.in_flight)

    async def one(row: dict[str, Any]) -> None:
        async with permits:
            answer = await client.chat.completions.create(**row["body"])
        output.write(answer_line(row["custom_id"], answer.model_dump()))

    await asyncio.gather(*(one(row) for row in rows(given.input)))
    await client.close()


if __name__ == "__main__":
    task = read_arguments()
    with task.output.open("w") as file:
        asyncio.run(run(task, file))
