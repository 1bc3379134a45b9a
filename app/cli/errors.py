"""How a command ends badly: one clear line on standard error and an exit code."""

from importlib.util import find_spec


class CliError(Exception):
    """A command cannot do what was asked. The message says what to do about it."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def require_extra(extra: str, *modules: str) -> None:
    """Raise CliError naming the extra when one of its modules is not installed; nothing is imported."""
    if any(find_spec(module) is None for module in modules):
        raise CliError(f"this command needs the extra {extra!r}: pip install 'gpuyard[{extra}]'")
