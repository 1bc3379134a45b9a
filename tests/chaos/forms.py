"""The two forms of the kill test: how much work, which timings, how many faults of each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

WORKERS = ("north", "east", "south", "west")
PREFIX = "row"
"""How the ids of the whole batch begin; those of the batches beside it begin otherwise."""


class Kind(StrEnum):
    """What is done to a process or a stored content; the values are the words of the report."""

    RESTART = "kill -9, started again at once"
    DEATH = "kill -9, away for longer than its leases"
    FREEZE = "SIGSTOP for longer than its leases"
    DRAIN = "SIGTERM: drained, then started again"
    THREADS = "may start no thread for some seconds"
    FLUSH = "FLUSHALL"
    KILL = "kill -9"
    TERM = "SIGTERM"
    PAUSE = "SIGSTOP for some seconds"
    FLIP = "one bit flipped"
    TRUNCATE = "cut in half"
    SWAP = "swapped with another one"
    DELETE = "deleted"
    GONE_530 = "a gateway answers 530"
    LATE_408 = "a gateway answers 408"
    BARRED_403 = "a gateway answers 403"
    MOVED_302 = "a gateway redirects to its login"
    PAGE_200 = "a gateway answers with a page"
    EMPTY_200 = "a gateway answers with no choices"
    COMPRESSED = "a gateway compresses answers"


OF_WORKERS = frozenset({Kind.RESTART, Kind.DEATH, Kind.FREEZE, Kind.DRAIN})
LOSSES = frozenset({Kind.RESTART, Kind.DEATH, Kind.FREEZE})
"""After these a worker's rows that were not handed in run again."""
SILENT = frozenset({Kind.DEATH, Kind.FREEZE})
"""These are noticed by their silence only."""
_PAGE = "raw=<html>down for a moment</html>;type=text/html"
GATEWAYS: Mapping[Kind, str] = {
    Kind.GONE_530: f"status=530;{_PAGE}",
    Kind.LATE_408: f"status=408;{_PAGE}",
    Kind.BARRED_403: f"status=403;{_PAGE}",
    Kind.MOVED_302: "status=302;header=Location: /login;raw= ",
    Kind.PAGE_200: _PAGE,
    Kind.EMPTY_200: 'raw={"choices":[]}',
    Kind.COMPRESSED: "gzip=1",
}
"""What stands before an engine, and what it is told to do (tests/fakes/runtime_server.py)."""
OF_CONTENTS = (Kind.FLIP, Kind.TRUNCATE, Kind.SWAP, Kind.DELETE)
CONTENT = ("segment", "input", "upload", "result")
"""What damage meets: a hand-in, an input while its rows run, one before it is validated, an output file."""


@dataclass(frozen=True)
class Form:
    """One form. `worker_faults` and `part_faults` count by kind, and by part or content and kind."""

    name: str
    rows: int
    prompts: int
    latency_ms: int
    shard_rows: int
    timing: Mapping[str, float]
    worker_faults: Mapping[Kind, int]
    part_faults: Mapping[tuple[str, Kind], int]
    side_rows: int
    """Rows of each batch beside the whole one, whose input or result is damaged."""
    fewest_working: int
    """A fault of a worker waits while no more than this many work: with nobody left there is nothing to see."""
    prompt_seconds: float
    """How long a shard may lie idle that a restarted or leaving worker gave back; CI shares its machine with others."""
    bound_seconds: float
    """So long the batch may take from its creation to its files."""

    @property
    def toleration_seconds(self) -> float:
        return self.timing["toleration_seconds"]

    @property
    def away_seconds(self) -> float:
        """How long a dead or frozen worker stays away: until its leases were given to others, surely."""
        return self.toleration_seconds + 5 * self.timing["renew_seconds"]

    @property
    def rows_a_second(self) -> float:
        """What one worker can do at most."""
        return self.prompts * 1000 / self.latency_ms


FULL = Form(
    name="full",
    rows=20_000,
    prompts=16,
    latency_ms=300,
    shard_rows=64,
    timing={
        "renew_seconds": 2,
        "grace_seconds": 6,
        "toleration_seconds": 20,
        "kill_after_seconds": 1,
        "drain_seconds": 5,
        "sweep_seconds": 1,
        "segment_seconds": 2,
        "retry_max_seconds": 2,
    },
    worker_faults={Kind.RESTART: 4, Kind.DEATH: 2, Kind.FREEZE: 1, Kind.DRAIN: 2},
    part_faults={
        ("worker", Kind.THREADS): 2,
        ("broker", Kind.FLUSH): 3,
        ("broker", Kind.KILL): 2,
        ("broker", Kind.PAUSE): 1,
        ("api", Kind.TERM): 1,
        ("api", Kind.KILL): 2,
        ("control", Kind.TERM): 1,
        ("control", Kind.KILL): 1,
        ("beat", Kind.KILL): 1,
        **{("gateway", kind): 1 for kind in GATEWAYS},
        **{(content, kind): 1 for content in CONTENT for kind in OF_CONTENTS},
    },
    side_rows=320,
    fewest_working=2,
    prompt_seconds=2,
    bound_seconds=330,
)

QUICK = Form(
    name="quick",
    rows=500,
    prompts=4,
    latency_ms=400,
    shard_rows=8,
    timing={
        "renew_seconds": 1,
        "grace_seconds": 3,
        "toleration_seconds": 8,
        "kill_after_seconds": 0.5,
        "drain_seconds": 2,
        "sweep_seconds": 1,
        "segment_seconds": 1,
        "retry_max_seconds": 1,
    },
    worker_faults={Kind.RESTART: 1, Kind.DEATH: 1, Kind.FREEZE: 1, Kind.DRAIN: 1},
    part_faults={
        ("worker", Kind.THREADS): 1,
        ("broker", Kind.FLUSH): 1,
        ("broker", Kind.KILL): 1,
        ("api", Kind.TERM): 1,
        ("api", Kind.KILL): 1,
        ("control", Kind.KILL): 1,
        ("gateway", Kind.GONE_530): 1,
        ("gateway", Kind.COMPRESSED): 1,
        ("segment", Kind.FLIP): 1,
        ("input", Kind.SWAP): 1,
        ("upload", Kind.FLIP): 1,
        ("result", Kind.TRUNCATE): 1,
    },
    side_rows=32,
    fewest_working=1,
    prompt_seconds=5,
    bound_seconds=150,
)

FORMS = {form.name: form for form in (FULL, QUICK)}
