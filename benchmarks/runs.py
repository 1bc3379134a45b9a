"""One run of one client over one file, as all of them are measured."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    """What it took. Seconds are of the wall; `cpu_seconds` by process."""

    client: str
    rows: int
    limit: float  # rows a second of the engine
    inside_seconds: float  # first row at the engine to the last row it completed
    whole_seconds: float  # first row at the engine to the last line on the disk
    cpu_seconds: dict[str, float]
    peak_mib: dict[str, float]
    requests: int
    max_waiting: int  # rows that waited inside the engine at once
    end_to_end_seconds: float = 0.0  # product only: from the start of the upload to the result file
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Of the engine's limit, while the run lasted; the time of one row is the engine's own."""
        return self.rows / self.inside_seconds / self.limit

    @property
    def whole_share(self) -> float:
        return self.rows / self.whole_seconds / self.limit

    def cpu_us(self, process: str) -> float:
        """Microseconds of CPU a row."""
        return self.cpu_seconds[process] / self.rows * 1e6

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"share": self.share, "whole_share": self.whole_share}
