"""How a command ends: an exit code that scripts can use and, when it ends badly, one clear line on standard error."""

from enum import IntEnum
from importlib.util import find_spec

EXIT_CODES = (
    "Exit code: 0 completed, every row answered; 1 error; 2 wrong usage; 3 the batch ended failed, expired or "
    "cancelled; 4 the batch completed and some rows failed; 130 Ctrl-C."
)


class ExitCode(IntEnum):
    """What a command tells the shell. 3 and 4 are said of a batch that was followed to its end."""

    OK = 0
    ERROR = 1
    USAGE = 2
    ENDED_BADLY = 3
    ROWS_FAILED = 4
    INTERRUPTED = 130


class CliError(Exception):
    """A command cannot do what was asked. The message says what to do about it."""

    def __init__(self, message: str, *, exit_code: int = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def require_extra(extra: str, *modules: str) -> None:
    """Raise CliError naming the extra when one of its modules is not installed; nothing is imported."""
    if any(find_spec(module) is None for module in modules):
        raise CliError(f"this command needs the extra {extra!r}: pip install 'gpuyard[{extra}]'")
