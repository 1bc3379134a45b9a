"""The one interface between a worker and an LLM runtime (AR-03, AR-04, AR-06, AR-07).

A new runtime is a subclass named by its dotted path in the settings; nothing else changes.
`tests/executors/test_conformance.py` holds what every subclass must do.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from app.domain import parameters
from app.domain.rows import Reply, Row
from app.domain.runtimes import RuntimeFacts, RuntimeLoad
from executors.cancellation import CancelToken
from executors.settings import ExecutorSettings


class ExecutorUnavailable(Exception):
    """No executor can be built from these settings on this machine. The message says what to do."""


Ending = Reply | Callable[[], Reply]
"""How a row ended that was begun: its reply, or what waits for that and gives it or raises as `execute` does."""


class PullFailed(Exception):
    """A model could not be fetched. The message is the runtime's reason."""


class BaseExecutor(ABC):
    """Runs rows on one runtime. Every method may be called from any thread, `execute` from many at once."""

    kind: ClassVar[str]
    """What sort of runtime this is: "vllm", "ollama", "local", "fake", or a word of your own."""

    default_url: ClassVar[str | None] = None
    """Where the runtime is when the settings name no URL. None: it needs no URL."""

    def __init__(self, settings: ExecutorSettings, url: str | None = None) -> None:
        """Keep what is needed. Raises ExecutorUnavailable when this can never work on this machine."""
        self.settings = settings
        self.url = url or self.default_url
        if settings.embedding_chunk_size is not None:
            self.embedding_chunk_size = settings.embedding_chunk_size

    def __init_subclass__(cls, **options: object) -> None:
        """Whoever runs rows in another way begins none, unless it says how."""
        super().__init_subclass__(**options)
        if "execute" in cls.__dict__ and "begin" not in cls.__dict__:
            cls.begin = BaseExecutor.begin  # type: ignore[method-assign]

    pulls: bool = False
    """Whether `pull` can fetch a model that the runtime lacks."""

    one_group_at_a_time: ClassVar[bool] = False
    """Whether rows of another `group` make the runtime load something: those of one run to their end first."""

    embedding_chunk_size: int = 1
    """How many embedding rows may share one request; 1: none (B-06)."""

    refusals: int = 0
    """How often the runtime would not take a row just then (429, 503). `auto` gives way when it grows (R-17)."""

    @property
    def name(self) -> str:
        """A name for logs and for the worker's hello, unique among the executors of a worker."""
        return f"{self.kind}@{self.url}" if self.url else self.kind

    @abstractmethod
    def probe(self) -> RuntimeFacts:
        """Look at the runtime: alive or why not, models, endpoints, slots.

        Returns within about `settings.probe_seconds` and never raises.
        """

    def forget(self) -> None:  # noqa: B027 - most keep nothing
        """Have the next `probe` ask for everything again, whatever is kept of the last one. By default nothing is."""

    @abstractmethod
    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
        """Run one row to its end and return what came of it; `row.body` is sent as it stands.

        Blocks for at most `timeout` seconds, waits and retries included; then the reply is `request_timeout`. Loading
        the row's model is not counted, and has a bound of its own. Nothing that the runtime does raises: it becomes a
        Reply (B-13, B-14), which blames the runtime where the row is not at fault. The worker runs such a row again, so
        a few tries here are enough.

        Raises RowCancelled soon after `cancelled` is set; by then the runtime was told to stop working on the row.
        """

    def begin(self, row: Row, *, timeout: float, cancelled: CancelToken, ended: Callable[[Ending], None]) -> bool:
        """Begin a row and return at once; what came of it is told to `ended`, once, from a thread of the executor's.

        That may be before this returns, and it costs no thread a row. `ended` is given a function for all that takes
        further tries or any waiting; it is called in a thread that may wait. False: nothing was begun, `execute` it. So
        it is with every executor that does not say otherwise. Raises nothing.
        """
        return False

    def can_coalesce_embedding(self, row: Row) -> bool:
        """Tell whether this row may share a request with others of its `group` (B-07, B-10)."""
        return False

    def execute_chunk(self, rows: Sequence[Row], *, timeout: float, cancelled: CancelToken) -> list[Reply]:
        """Run rows that may share a request, all of one `group`; one reply a row, in their order.

        Whatever goes wrong with the shared request costs no row its isolation (B-16, B-20). Raises as `execute` does.
        """
        return [self.execute(row, timeout=timeout, cancelled=cancelled) for row in rows]

    def group(self, row: Row) -> Hashable:
        """Name what rows must have in common to run side by side without the runtime loading anything anew."""
        return row.model

    def limit(self, row: Row) -> int | None:
        """Say how many requests like this row's the runtime works on at once, None where it does not tell."""
        return None

    def load(self) -> RuntimeLoad | None:
        """Read the runtime's own gauges: rows it works on and rows that wait, whoever sent them. None: it has none.

        Called about once a second while rows run, so it must be cheap. Returns within about `settings.probe_seconds`
        and never raises.
        """
        return None

    def unsupported(self, endpoint: str) -> frozenset[str]:
        """Name the parameters of `endpoint` that this runtime can neither take nor be given in its own words.

        By default what app.domain.parameter_table says of its kind; a kind that is not there takes everything. The
        worker gives no row to a runtime that asks for one of them, or leaves them out of its body where the batch
        allows that: `execute` never meets them.
        """
        return parameters.unsupported(self.kind, endpoint)

    def pull(self, model: str, *, progress: Callable[[int, int], None], cancelled: CancelToken) -> None:
        """Fetch a model and tell `progress(completed, total)` in bytes, never backwards.

        Blocks until the runtime has it; the next `probe` shows it. Raises PullFailed with the runtime's reason, and
        RowCancelled soon after a cancel.
        """
        raise PullFailed(f"{self.name} cannot fetch models")

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and child processes. Rows still in flight fail. May be called twice."""
