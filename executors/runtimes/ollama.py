"""Ollama, by its OpenAI-compatible endpoints (AR-02). What it is and has is asked by its own API."""

import re
from typing import ClassVar

from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.runtimes.openai_compatible import OpenAICompatibleExecutor

_DEFAULT_TAG = ":latest"
_SINCE_OLDEST = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_RESPONSES_SINCE = (0, 13, 3)


class OllamaExecutor(OpenAICompatibleExecutor):
    """One Ollama server. The model `x` is the model `x:latest`."""

    kind: ClassVar[str] = "ollama"
    default_url: ClassVar[str | None] = "http://127.0.0.1:11434"

    def look(self, deadline: float) -> RuntimeFacts:
        """Ask for the version and what is installed."""
        version = str(self._get_json("/api/version", deadline)["version"])
        models = [str(model["name"]) for model in self._get_json("/api/tags", deadline)["models"]]
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=True,
            models=tuple(_served(model) for model in models),
            endpoints=_endpoints(version),
            version=version,
        )


def _served(model: str) -> ServedModel:
    return ServedModel(model, (model.removesuffix(_DEFAULT_TAG),) if model.endswith(_DEFAULT_TAG) else ())


def _endpoints(version: str) -> tuple[str, ...]:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return (*_SINCE_OLDEST, "/v1/responses") if numbers >= _RESPONSES_SINCE else _SINCE_OLDEST
