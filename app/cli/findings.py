"""What `gpuyard doctor` found out about one part."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "red"]


@dataclass(frozen=True)
class Finding:
    """One line. `text` says what is; `do` what to do about it, and a red one always has it."""

    part: str
    level: Level
    text: str
    do: str = ""
