"""How a command ends: an exit code that scripts can use and, when it ends badly, one clear line on standard error."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from importlib.util import find_spec
from typing import Any

from app import interrupts


class ExitCode(IntEnum):
    """What a command tells the shell, the same of every command (MEANINGS)."""

    OK = 0
    ERROR = 1
    USAGE = 2
    ENDED_BADLY = 3
    ROWS_FAILED = 4
    AWAY = 5
    ATTENTION = 6
    INTERRUPTED = interrupts.EXIT_CODE


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "done; a batch that was followed has completed, and every row was answered",
    ExitCode.ERROR: "an error, told in one line on standard error",
    ExitCode.USAGE: "wrong usage, or results cannot be written where `-o` says; nothing was sent",
    ExitCode.ENDED_BADLY: "the batch that was followed ended failed (bad input, or first rows that all failed alike), "
    "expired or cancelled",
    ExitCode.ROWS_FAILED: "the batch that was followed has completed, and some rows failed",
    ExitCode.AWAY: "the server does not answer, or says to come back later: the same command may do well in a while",
    ExitCode.ATTENTION: "`gpuyard status`: something needs a person",
    ExitCode.INTERRUPTED: "Ctrl-C",
}
EXIT_CODES = (
    "Exit code: 0 completed, every row answered; 1 error; 2 wrong usage; 3 the batch ended failed, expired or "
    "cancelled; 4 the batch completed and some rows failed; 5 the server is away; 130 Ctrl-C."
)


class CliError(Exception):
    """A command cannot do what was asked. The message says what to do about it."""

    def __init__(self, message: str, *, exit_code: int = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def the_one(meant: Sequence[Mapping[str, Any]], given: str, kind: str) -> Mapping[str, Any]:
    """Return the one thing that a person gave the id or a name of. Raises CliError when none or several are meant."""
    # One thing's name may be another's id.
    meant = [each for each in meant if each["id"] == given] or meant
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise CliError(f"no such {kind}; `gpuyard {kind} list` shows them")
    raise CliError(f"{len(meant)} {kind}s are named so; say which by its id: {', '.join(each['id'] for each in meant)}")


def require_extra(extra: str, *modules: str) -> None:
    """Raise CliError naming the extra when one of its modules is not installed; nothing is imported."""
    if any(find_spec(module) is None for module in modules):
        raise CliError(
            f"this command needs the packages of the extra {extra!r}: `make install` in a clone has them; "
            f"of a wheel: pip install 'WHEEL[{extra}]'"
        )
