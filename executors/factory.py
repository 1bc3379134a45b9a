"""From settings to executors (AR-06): the only place that knows which runtimes there are."""

import importlib

from executors.base import BaseExecutor, ExecutorUnavailable
from executors.detection import detect
from executors.settings import ExecutorSettings

RUNTIMES: dict[str, str] = {
    "fake": "executors.fakes:FakeExecutor",
    "local": "executors.runtimes.local:LocalExecutor",
    "ollama": "executors.runtimes.ollama:OllamaExecutor",
    "vllm": "executors.runtimes.vllm:VLLMExecutor",
}
"""The runtimes that have a short name. A third party's is its dotted path, and nothing here changes (AR-04)."""


def executor_factory(settings: ExecutorSettings) -> list[BaseExecutor]:
    """Build one executor for each runtime URL, or one for the runtime's default place.

    Raises ExecutorUnavailable, whose message says what to do, when the choice is unknown or cannot work here.
    """
    if settings.runtime == "auto":
        return detect(settings)
    chosen = executor_class(settings.runtime)
    return [chosen(settings, url) for url in settings.urls or (None,)]


def executor_class(runtime: str) -> type[BaseExecutor]:
    """Find the class of a runtime by its short name or dotted path.

    Raises ExecutorUnavailable for anything that is no subclass of BaseExecutor.
    """
    path = RUNTIMES.get(runtime, runtime)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        known = ", ".join(["auto", *sorted(RUNTIMES)])
        raise ExecutorUnavailable(f"Unknown runtime {runtime!r}: use {known} or a dotted path package.module:Class.")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ExecutorUnavailable(f"Runtime {runtime!r} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, BaseExecutor)):
        raise ExecutorUnavailable(f"Runtime {runtime!r} is no subclass of executors.base.BaseExecutor.")
    return found
