"""`runtime = auto`: look for what runs on this machine, in a fixed order (R-31)."""

from dataclasses import dataclass

from executors.base import BaseExecutor, ExecutorUnavailable
from executors.fakes import FakeExecutor
from executors.runtimes.local import LocalExecutor
from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings

_OLLAMA_PORT = ":11434"


@dataclass(frozen=True)
class Places:
    """Where a runtime is looked for when no URL is set."""

    ollama: str | None = OllamaExecutor.default_url
    vllm: str | None = VLLMExecutor.default_url


def detect(settings: ExecutorSettings, places: Places | None = None) -> list[BaseExecutor]:
    """Choose: what the URLs are; else Ollama if it answers; else a vLLM; else the local model where installed.

    Raises ExecutorUnavailable with what to do when there is nothing.
    """
    if settings.urls:
        return [at_url(settings, url) for url in settings.urls]
    places = places or Places()
    ollama = OllamaExecutor(settings, places.ollama)
    if ollama.probe().alive:
        return [ollama]
    ollama.close()
    vllm = VLLMExecutor(settings, places.vllm)
    # Port 8000 is everybody's: a web server there must not get prompts.
    if vllm.is_vllm():
        return [vllm]
    vllm.close()
    try:
        return [LocalExecutor(settings)]
    except ExecutorUnavailable as error:
        raise ExecutorUnavailable(
            f"No runtime found: no Ollama at {places.ollama}, no vLLM at {places.vllm}. Start one, or name its place "
            f"with --runtime-url (GPUYARD_RUNTIME_URL). {error}"
        ) from error


def at_url(settings: ExecutorSettings, url: str) -> BaseExecutor:
    """Tell an Ollama by its own API. Anything else, or what does not answer yet, is taken by its port."""
    if url.startswith("fake:"):
        return FakeExecutor(settings, url)
    ollama = OllamaExecutor(settings, url)
    if ollama.probe().alive or url.rstrip("/").removesuffix("/v1").endswith(_OLLAMA_PORT):
        return ollama
    ollama.close()
    return VLLMExecutor(settings, url)
