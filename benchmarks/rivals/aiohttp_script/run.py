"""What a careful person writes: lanes over one aiohttp session on uvloop, each line written as it is done.

No order, no checkpoint, no retry: the least that answers every row.
"""

import asyncio
from typing import TextIO

import aiohttp
import uvloop
from given import Given, answer_line, read_arguments, rows


async def run(given: Given, output: TextIO) -> None:
    todo = rows(given.input)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as session:

        async def lane() -> None:
            for row in todo:
                async with session.post(given.url + row["url"], json=row["body"]) as answer:
                    answer.raise_for_status()
                    output.write(answer_line(row["custom_id"], await answer.json()))

        await asyncio.gather(*(lane() for _ in range(given.in_flight)))


if __name__ == "__main__":
    task = read_arguments()
    with task.output.open("w") as file:
        uvloop.run(run(task, file))
