"""The unit files of systemd, read as far as tests need it."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

UNITS = Path(__file__).parents[1] / "docs" / "operate" / "systemd"
PREFIX = "/opt/gpuyard"
"""Where docs/operate/hosts.md makes the environment."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Unit:
    """The unit of one part: api, beat, control, worker."""

    part: str
    text: str

    @classmethod
    def of(cls, part: str) -> Self:
        return cls(part, (UNITS / f"gpuyard-{part}.service").read_text(encoding="utf-8"))

    def value(self, name: str) -> str:
        """The one value of a key."""
        (found,) = re.findall(rf"^{name}=(.*)$", self.text, re.MULTILINE)
        return str(found)

    @property
    def stop_seconds(self) -> float:
        return float(self.value("TimeoutStopSec"))

    def environment(self, given: Mapping[str, str], state: Path) -> dict[str, str]:
        """What the part is told: the unit's own lines, and over them `given`, the lines of its EnvironmentFile."""
        lines = re.findall(r"^Environment=(.*)$", self.text, re.MULTILINE)
        pairs = [pair.partition("=") for line in lines for pair in shlex.split(line)]
        return {name: value.replace("%S", str(state)) for name, _, value in pairs} | dict(given)

    def argv(self, environment: Mapping[str, str], prefix: Path) -> list[str]:
        """What ExecStart starts, out of the environment of Python that lies in `prefix`."""
        words = shlex.split(self.value("ExecStart").replace(PREFIX, str(prefix)))
        return [_VARIABLE.sub(lambda found: environment[found[1]], word) for word in words]
