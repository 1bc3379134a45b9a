"""Who gets a thread next, when more calls want one than there are."""

import asyncio
import threading

import pytest

from app.api.threads import ORG, Threads, Turns

BOUND_SECONDS = 20.0


class Calls:
    """Calls of orgs that hold their threads until they are released, and which began in which order."""

    def __init__(self, count: int) -> None:
        self.began: list[str] = []
        self._threads = Threads("test", count)
        self._released = threading.Semaphore(0)

    def make(self, org_id: str) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self._make(org_id))

    def release(self, count: int) -> None:
        self._released.release(count)

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            while len(self.began) < count:  # noqa: ASYNC110 - what it waits for is another thread
                await asyncio.sleep(0.005)

    async def _make(self, org_id: str) -> None:
        ORG.set(org_id)
        await self._threads.run(self._work, org_id)

    def _work(self, org_id: str) -> None:
        self.began.append(org_id)
        assert self._released.acquire(timeout=BOUND_SECONDS)


def test_an_org_that_has_none_waits_for_no_call_of_another() -> None:
    async def run() -> None:
        calls = Calls(4)
        tasks = [calls.make("many") for _ in range(10)]
        await calls.until_begun(3)
        tasks.append(calls.make("few"))
        await calls.until_begun(4)
        assert calls.began.count("few") == 1
        calls.release(11)
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_thread_that_is_free_goes_to_the_org_that_has_the_fewest() -> None:
    async def run() -> None:
        calls = Calls(2)
        tasks = [calls.make("many") for _ in range(10)]
        await calls.until_begun(2)
        tasks += [calls.make("few"), calls.make("few")]
        await asyncio.sleep(0)
        calls.release(1)
        await calls.until_begun(3)
        assert calls.began[2] == "few"
        calls.release(11)
        await asyncio.gather(*tasks)

    asyncio.run(run())


@pytest.mark.parametrize("has_its_turn", [False, True])
def test_a_call_that_is_given_up_while_it_waits_leaves_its_thread_to_the_next(*, has_its_turn: bool) -> None:
    async def run() -> None:
        turns = Turns(1)
        await turns.take("one")
        given_up = asyncio.create_task(turns.take("one"))
        await asyncio.sleep(0)
        if has_its_turn:
            turns.give_back("one")
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        if not has_its_turn:
            turns.give_back("one")
        await asyncio.wait_for(turns.take("another"), BOUND_SECONDS)

    asyncio.run(run())
