"""vLLM, and any other server with OpenAI's API (AR-02)."""

import contextlib
import time
from dataclasses import replace
from typing import ClassVar

from app.domain.runtimes import RuntimeFacts
from executors.http_wire import HttpError
from executors.runtimes.openai_compatible import ENDPOINTS, OpenAICompatibleExecutor


class VLLMExecutor(OpenAICompatibleExecutor):
    """One vLLM. A server of another make works too, it only tells less about itself."""

    kind: ClassVar[str] = "vllm"
    default_url: ClassVar[str | None] = "http://127.0.0.1:8000"

    def look(self, deadline: float) -> RuntimeFacts:
        """Add the version, and the endpoints: vLLM has routes only for what its model can do.

        Both can change only with a restart, so they are asked for when the runtime was not alive before.
        """
        facts = super().look(deadline)
        if self._facts.alive:
            return replace(facts, version=self._facts.version, endpoints=self._facts.endpoints)
        return replace(facts, version=self._version(deadline), endpoints=self._endpoints(deadline))

    def is_vllm(self) -> bool:
        """Tell a vLLM from any other server: only it has both a `/version` and models `owned_by` vllm."""
        deadline = time.monotonic() + self.settings.probe_seconds
        try:
            version = self._get_json("/version", deadline)["version"]
            models = self._get_json("/v1/models", deadline)["data"]
            return isinstance(version, str) and any(model["owned_by"] == "vllm" for model in models)
        except Exception:  # noqa: BLE001 - anything may listen on that port
            return False

    def _version(self, deadline: float) -> str | None:
        with contextlib.suppress(HttpError, LookupError, TypeError, ValueError):
            return str(self._get_json("/version", deadline)["version"])
        return None

    def _endpoints(self, deadline: float) -> tuple[str, ...]:
        with contextlib.suppress(HttpError, LookupError, TypeError, ValueError):
            paths = self._get_json("/openapi.json", deadline)["paths"]
            return tuple(endpoint for endpoint in ENDPOINTS if endpoint in paths)
        return ENDPOINTS
