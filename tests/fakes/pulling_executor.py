"""A steered runtime that fetches models when the test says so; by its URL it can also stand in a process of its own.

`tests.fakes.pulling_executor:PullingExecutor` with the URL `pulling:?models=a,b` has these models at once and never
ends a pull by itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.base import PullFailed
from executors.cancellation import CancelToken, RowCancelled
from executors.settings import ExecutorSettings
from tests.fakes.steered_executor import SteeredExecutor

PULL_SECONDS = 60.0
"""Longer than any test waits for something else."""
Step = tuple[int, int] | Exception | None


class PullingExecutor(SteeredExecutor):
    """A pull waits for the test's next `step`: bytes so far and in all, an error to raise, or None for its end."""

    kind: ClassVar[str] = "pulling"
    pulls: ClassVar[bool] = True

    def __init__(self, settings: ExecutorSettings | None = None, url: str | None = None) -> None:
        super().__init__()
        self.url = url
        self.models = parse_qs(urlsplit(url or "").query).get("models", [""])[0].split(",")
        self.pulling: list[str] = []
        """Every pull that began."""
        self.cut_pulls: list[str] = []
        self._steps: list[Step] = []
        if settings is not None:  # nobody steers it
            self.let_all()

    def step(self, *steps: Step) -> None:
        """Say what becomes of the pull under way, or of the next one."""
        with self.changed:
            self._steps.extend(steps)
            self.changed.notify_all()

    def probe(self) -> RuntimeFacts:
        """Serve what was fetched; `x` is `x:latest` as well."""
        with self.changed:
            models = tuple(ServedModel(model, (f"{model}:latest",)) for model in self.models if model)
        return replace(super().probe(), models=models)

    def pull(self, model: str, *, progress: Callable[[int, int], None], cancelled: CancelToken) -> None:
        """Do the steps, and have the model at the end."""
        with self.changed:
            self.pulling.append(model)
            self.changed.notify_all()
        while True:
            step = self._next(model, cancelled)
            if isinstance(step, Exception):
                raise step
            if step is None:
                break
            progress(*step)
        with self.changed:
            self.models.append(model)

    def _next(self, model: str, cancelled: CancelToken) -> Step:
        def wake() -> None:
            with self.changed:
                self.changed.notify_all()

        patience = None if self.url else PULL_SECONDS
        with cancelled.watching(wake), self.changed:
            self.changed.wait_for(lambda: self._steps or cancelled.is_cancelled, patience)
            if cancelled.is_cancelled:
                self.cut_pulls.append(model)
                self.changed.notify_all()
                raise RowCancelled
            return self._steps.pop(0) if self._steps else PullFailed("the test says nothing")
