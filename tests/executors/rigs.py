"""What the conformance tests run on: an executor, and rows that are quick and slow there.

An executor of your own is tested by the same tests: `CONFORMANCE_RIG=package.module:function`, where the function is a
context manager that gives a `Rig` (docs/reference/runtimes.md).
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.domain.rows import Reply, Row
from executors.base import BaseExecutor
from executors.cancellation import CancelToken
from executors.fakes import FakeExecutor
from executors.runtimes.local import MODEL_ALIAS, LocalExecutor
from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.ollama_process import start_ollama
from tests.fakes.runtime_process import start_runtime

SETTINGS = ExecutorSettings()


@dataclass
class Rig:
    """One executor, a row it answers at once and a row that takes far longer than a test.

    `echoes`: an answer holds the first `[[mark]]` of its row, so that answers can be told apart. `dead` gives an
    executor whose runtime is dead, None where no test can kill it. `anew` gives another executor to close, where this
    one is for other tests too. `slow_executor` takes the slow rows, None for `executor`. `run` is how rows are run:
    waited for, or begun where the executor can.
    """

    executor: BaseExecutor
    quick: Callable[[], Row]
    slow: Callable[[], Row]
    echoes: bool = True
    dead: Callable[[], BaseExecutor] | None = None
    slow_executor: BaseExecutor | None = None
    anew: Callable[[], BaseExecutor] | None = None
    run: Callable[..., Reply] = run

    def run_slow(self, *, timeout: float, cancelled: CancelToken | None = None) -> Reply:
        return self.run(self.slow_executor or self.executor, self.slow(), timeout=timeout, cancelled=cancelled)


@contextmanager
def mocked(kind: str, folder: Path) -> Iterator[Rig]:
    """An executor in front of a mock of its server."""
    if kind == "ollama":
        runtime = start_ollama(folder, "--parallel", 4)
        executor: BaseExecutor = OllamaExecutor(SETTINGS, runtime.url)
    else:
        runtime = start_runtime(folder)
        executor = VLLMExecutor(SETTINGS, runtime.url)

    def dead() -> BaseExecutor:
        runtime.kill()
        return executor

    slow = "{{hang}}" if kind == "ollama" else "hello"
    yield Rig(executor, chat_row, lambda: chat_row(slow, user="hang=1"), dead=dead)
    executor.close()
    runtime.kill()


@contextmanager
def real(local: LocalExecutor, *, over_http: bool) -> Iterator[Rig]:
    """A real llama.cpp: by its own executor, or as an OpenAI server like any other to who has its URL."""
    executor = VLLMExecutor(SETTINGS, local.server_url) if over_http else local
    yield Rig(
        executor,
        quick=lambda: chat_row(model=MODEL_ALIAS, max_tokens=4),
        slow=lambda: chat_row("Count to a million.", model=MODEL_ALIAS, max_tokens=1500, ignore_eos=True),
        echoes=False,
        anew=None if over_http else lambda: LocalExecutor(SETTINGS),
    )
    if over_http:
        executor.close()


@contextmanager
def fake() -> Iterator[Rig]:
    """The runtime that is none."""
    yield Rig(
        FakeExecutor(SETTINGS),
        quick=lambda: chat_row(model="fake"),
        slow=lambda: chat_row(model="fake"),
        slow_executor=FakeExecutor(SETTINGS, "fake:?hang_every=1"),
        dead=lambda: FakeExecutor(SETTINGS, "fake:?dead=1"),
    )


def own(path: str) -> AbstractContextManager[Rig]:
    """Give the rig of a third party by its dotted path."""
    module, _, name = path.partition(":")
    rig: AbstractContextManager[Rig] = getattr(importlib.import_module(module), name)()
    return rig
