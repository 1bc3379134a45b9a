"""One httpx.AsyncClient for all lanes, with as many connections as lanes."""

import asyncio
from typing import TextIO

import httpx
from given import Given, answer_line, read_arguments, rows


async def run(given: Given, output: TextIO) -> None:
    todo = rows(given.input)
    limits = httpx.Limits(max_connections=given.in_flight, max_keepalive_connections=given.in_flight)
    async with httpx.AsyncClient(base_url=given.url, limits=limits, timeout=300) as client:

        async def lane() -> None:
            for row in todo:
                answer = await client.post(row["url"], json=row["body"])
                answer.raise_for_status()
                output.write(answer_line(row["custom_id"], answer.json()))

        await asyncio.gather(*(lane() for _ in range(given.in_flight)))


if __name__ == "__main__":
    task = read_arguments()
    with task.output.open("w") as file:
        asyncio.run(run(task, file))
