"""Runtimes: what a worker knows of the LLM server beside it and tells the control plane (AR-02, DESIGN 6)."""

from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of a runtime. A row may name it by its id or by any alias (Ollama: `x` is `x:latest`)."""

    id: str
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a row's `model` may have."""
        return (self.id, *self.aliases)


@dataclass(frozen=True, slots=True)
class RuntimeLoad:
    """What a runtime's own gauges read, whoever sent it the work: rows it works on, and rows that wait for it."""

    running: int
    waiting: int

    def __add__(self, other: Self) -> "RuntimeLoad":
        """Sum over runtimes."""
        return RuntimeLoad(self.running + other.running, self.waiting + other.waiting)


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """What one look at a runtime showed. Not alive: `reason` says why, and the rest is what was known before.

    `endpoints` are the paths of OpenAI's API it serves ("/v1/chat/completions"). `slots` is how many rows it really
    works on at once, None where it does not tell.
    """

    name: str
    kind: str
    alive: bool
    reason: str = ""
    models: tuple[ServedModel, ...] = ()
    endpoints: tuple[str, ...] = ()
    slots: int | None = None
    version: str | None = None
    loaded: tuple[str, ...] | None = field(default=None, compare=False)
    """The models that it has in memory; None where it does not tell. It takes no other rows for that."""

    def serves(self, *, model: str, endpoint: str) -> bool:
        """Tell whether a row with this model and endpoint can run here now."""
        return self.alive and endpoint in self.endpoints and any(model in served.names for served in self.models)
