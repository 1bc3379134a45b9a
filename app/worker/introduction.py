"""Who this worker says it is (DESIGN 2, A-12)."""

import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import structlog

from app import durable
from app.client.errors import NameTaken
from app.domain.workers import Phase, Transport
from app.schemas.workers import WORKER_NAME, Hello, HostSample, Welcome
from app.worker import host
from app.worker.runtimes import Runtimes
from app.worker.state import StateDir, kept

MOST_ON_A_MACHINE = 64
log = structlog.get_logger("gpuyard.worker")
_NAME = re.compile(WORKER_NAME)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """What the settings and the state directory say of this worker."""

    name: str
    pool: str
    transport: Transport
    slots: int
    max_concurrent_prompts: int | None
    named: bool = True
    """Whether somebody chose the name; else a single-worker token's name wins (TK-02)."""


def hello(who: Identity, state: StateDir, runtimes: Runtimes, sample: HostSample | None, held: list[int]) -> Hello:
    """Introduce the worker as it is now. Rows do not outlive their process: `held` are leases with spooled rows."""
    return Hello(
        name=who.name,
        named=who.named,
        install_id=state.install_id,
        boot_id=state.boot_id,
        starts=state.starts,
        pool=who.pool,
        transport=who.transport,
        phase=Phase.BOOTING,
        hostname=host.hostname()[:255],
        slots=who.slots,
        max_concurrent_prompts=who.max_concurrent_prompts,
        versions={"gpuyard": own_version(), "python": platform.python_version()},
        runtimes=runtimes.infos(),
        held=held,
        sample=sample,
        row_by_row=True,
    )


def names(given: str | None, machine_id: str, state_path: Path) -> Iterator[str]:
    """Give the names to try: the one given, or the one kept from the last time, or `<machine_id>-<n>`."""
    if given:
        yield given
    elif (before := kept(state_path / "name", _NAME)) is not None:
        yield before
    else:
        machine = host.hostname() if machine_id.strip() in {"", "auto"} else machine_id
        fit = _UNFIT.sub("-", machine).strip("-._")[:100] or "worker"
        yield from (f"{fit}-{number}" for number in range(1, MOST_ON_A_MACHINE + 1))


def introduce(who: Identity, choices: Iterator[str], say: Callable[[Identity], Welcome], state_path: Path) -> Welcome:
    """Say hello under the first name that is free, and keep the name for the next start. Raises as `say` does."""
    taken: NameTaken | None = None
    for name in choices:
        try:
            welcome = say(replace(who, name=name))
        except NameTaken as error:
            taken = error
            continue
        try:
            durable.write(state_path / "name", welcome.name.encode("ascii"))
            durable.write(state_path / "worker_id", welcome.worker_id.encode("ascii"))
        except OSError as error:  # a full disk: it was taken in all the same, and set-up waits for room
            log.warning("name.not_kept", why=str(error))
        return welcome
    raise taken or AssertionError("no name to try")


def own_version() -> str:
    """Give the version of the installed package, or say that it is none."""
    try:
        return version("gpuyard")
    except PackageNotFoundError:
        return "unknown"  # run from a source tree
