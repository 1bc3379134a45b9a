"""The runtimes beside this worker: which are alive, and which one takes the next row."""

import threading
from collections.abc import Sequence

import structlog

from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts
from app.schemas.workers import MAX_MODEL_NAME, MAX_MODELS, RuntimeInfo
from executors.base import BaseExecutor
from executors.cancellation import CancelToken

log = structlog.get_logger("gpuyard.worker")


class RuntimeGone(Exception):
    """The runtime died under a row: the row has no answer and another worker may give it one."""


class Runtimes:
    """Executors with what their last probe showed. Thread-safe."""

    def __init__(self, executors: Sequence[BaseExecutor]) -> None:
        self._executors = list(executors)
        self._lock = threading.Lock()
        self._in_flight = dict.fromkeys(range(len(self._executors)), 0)
        self._facts = [
            RuntimeFacts(name=executor.name, kind=executor.kind, alive=False, reason="not looked at yet")
            for executor in self._executors
        ]

    def probe(self) -> bool:
        """Look at every runtime. True when something changed. Slow: for the probes' own thread."""
        changed = False
        for index, executor in enumerate(self._executors):
            found = _probed(executor, self._facts[index])
            if found != self._facts[index]:
                changed = True
                log.info("runtime.changed", runtime=found.name, alive=found.alive, reason=found.reason or None)
                self._facts[index] = found
        return changed

    @property
    def any_alive(self) -> bool:
        """Whether some runtime answers."""
        return any(facts.alive for facts in self._facts)

    @property
    def known_slots(self) -> int | None:
        """What the live runtimes work on at once, all together; None when one does not tell."""
        slots = [facts.slots for facts in self._facts if facts.alive]
        return sum(known) if slots and len(known := [count for count in slots if count]) == len(slots) else None

    def infos(self) -> list[RuntimeInfo]:
        """What the control plane is told."""
        return [
            RuntimeInfo(
                name=facts.name[:200],
                kind=facts.kind[:64],
                alive=facts.alive,
                reason=facts.reason[:500] or None,
                models=_names(facts),
                endpoints=list(facts.endpoints)[:32],
                slots=facts.slots,
                version=facts.version[:100] if facts.version else None,
            )
            for facts in list(self._facts)
        ]

    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
        """Run a row on the runtime that serves it and has least to do.

        Raises RowCancelled, and RuntimeGone when the runtime is not there any more.
        """
        index = self._take(row)
        if index is None:
            return self._unserved(row)
        try:
            reply = self._executors[index].execute(row, timeout=timeout, cancelled=cancelled)
        finally:
            with self._lock:
                self._in_flight[index] -= 1
        error = reply.error
        if error is not None and error.code is RowErrorCode.RUNTIME_UNAVAILABLE and not self._facts[index].alive:
            raise RuntimeGone(error.message)
        return reply

    def close(self) -> None:
        """Let go of all runtimes; rows in flight fail."""
        for executor in self._executors:
            executor.close()

    def _take(self, row: Row) -> int | None:
        with self._lock:
            serving = [
                index for index, facts in enumerate(self._facts) if facts.serves(model=row.model, endpoint=row.endpoint)
            ]
            if not serving:
                return None
            index = min(serving, key=self._in_flight.__getitem__)
            self._in_flight[index] += 1
            return index

    def _unserved(self, row: Row) -> Reply:
        if not all(facts.alive for facts in self._facts):
            raise RuntimeGone(f"no runtime that is alive serves {row.model}")
        message = f"The model {row.model!r} is not served here any more."
        return Reply(error=RowError(RowErrorCode.MODEL_NOT_FOUND, message))


def _probed(executor: BaseExecutor, before: RuntimeFacts) -> RuntimeFacts:
    try:
        return executor.probe()
    except Exception as error:  # a third party's executor; its runtime counts as down, the worker goes on
        log.exception("runtime.probe_failed", runtime=executor.name)
        return RuntimeFacts(
            name=before.name,
            kind=before.kind,
            alive=False,
            reason=f"the probe failed: {type(error).__name__}: {error}",
            models=before.models,
            endpoints=before.endpoints,
        )


def _names(facts: RuntimeFacts) -> list[str]:
    """Give what the wire takes of a runtime's models; a runtime that lists more is no reason to fall silent."""
    names = (name for model in facts.models for name in model.names)
    return [name for name in names if len(name) <= MAX_MODEL_NAME][:MAX_MODELS]
