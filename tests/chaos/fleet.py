"""The four GPU workers of a run, each with an engine of its own that outlives it, and what is done to them."""

import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.chaos.forms import PREFIX, WORKERS, Form
from tests.e2e.yard import Process, Yard
from tests.fakes.runtime_process import RuntimeProcess, launch

LITTLE_BYTES = 4 * 2**20
"""Room for small allocations; the stack of a thread takes 8 MiB."""
SELF_STOPPED = re.compile(r"^(\S+)\.\d+Z \[\w+ *\] lease\.self_stopped", re.MULTILINE)
"""Up to the second: one look gives up all leases that are overdue."""


def own(marks: Mapping[str, int], prefix: str) -> Counter[str]:
    """The marks of one batch."""
    return Counter({mark: times for mark, times in marks.items() if mark.startswith(f"[[{prefix}-")})


@dataclass
class Machine:
    """A worker's process as it is now, and the engine beside it."""

    name: str
    engine: RuntimeProcess
    process: Process
    starts: int = 1
    is_frozen: bool = False
    is_leaving: bool = False
    gateway: str = ""
    pids: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    _seen: Counter[str] = field(default_factory=Counter)

    @property
    def is_running(self) -> bool:
        return self.process.alive

    @property
    def is_working(self) -> bool:
        """It runs, and has said hello since it was started."""
        runs = self.process.alive and not self.is_frozen and not self.is_leaving
        return runs and self.process.log.read_text(errors="replace").count("worker.ready") >= self.starts

    def stand_before(self, gateway: str) -> None:
        """Have a gateway before the engine that does this; none with an empty text."""
        self.gateway = gateway
        self.engine.post("/gateway", gateway)

    def asked_since_the_last_time(self) -> set[int]:
        """The rows of the whole batch that its engine was asked for since this was called last."""
        now = own(self.engine.marks(), PREFIX)
        new = now - self._seen
        self._seen = now
        return {int(mark.strip("[]").rpartition("-")[2]) for mark in new}


class Fleet:
    """All of them. Verbs return at once."""

    def __init__(self, yard: Yard, form: Form) -> None:
        self._yard = yard
        self._form = form
        self.machines: dict[str, Machine] = {}

    def start(self) -> None:
        """Start all and wait until they listen."""
        latency = ("--latency-ms", self._form.latency_ms, "--spread", "--slots", 1000)
        launched = {name: launch(self._yard.folder, *latency, spawn=self._yard.spawn_engine) for name in WORKERS}
        for name, starting in launched.items():
            engine = starting.listening()
            self.machines[name] = Machine(name, engine, self._process(name, engine))
            self.machines[name].pids.append(self.machines[name].process.pid)
        self._yard.until_present(*WORKERS)

    def _process(self, name: str, engine: RuntimeProcess) -> Process:
        return self._yard.worker(name, runtime_url=engine.url, max_concurrent_prompts=self._form.prompts)

    def working(self) -> list[str]:
        return [name for name, machine in self.machines.items() if machine.is_working]

    def kill(self, name: str) -> None:
        self.machines[name].process.kill()

    def again(self, name: str) -> None:
        """Start it again: the same install, with what lies in its spool."""
        machine = self.machines[name]
        machine.process = self._process(name, machine.engine)
        machine.pids.append(machine.process.pid)
        machine.starts += 1
        machine.is_leaving = False

    def freeze(self, name: str) -> None:
        self.machines[name].is_frozen = True
        self.machines[name].process.freeze()

    def thaw(self, name: str) -> None:
        self.machines[name].process.thaw()
        self.machines[name].is_frozen = False

    def allow_no_threads(self, name: str) -> None:
        """Leave no room for the stack of a new thread."""
        pid = self.machines[name].process.pid
        room = psutil.Process(pid).memory_info().vms + LITTLE_BYTES
        resource.prlimit(pid, resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))

    def allow_threads(self, name: str) -> None:
        """Take the limit back; it may have ended, and another one of its name has none."""
        with suppress(ProcessLookupError):
            no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(self.machines[name].process.pid, resource.RLIMIT_AS, no_limit)

    def drain(self, name: str) -> None:
        self.machines[name].is_leaving = True
        self.machines[name].process.send(signal.SIGTERM)

    def has_left(self, name: str) -> bool:
        """Whether a drained one has ended; notes its exit code."""
        machine = self.machines[name]
        code = machine.process.exit_code
        if code is not None:
            machine.exits.append(code)
        return code is not None

    def answered(self) -> int:
        """Rows that engines were asked for, those that ran again among them."""
        return sum(machine.engine.stats()["requests"] for machine in self.machines.values())

    def marks(self) -> Counter[str]:
        """How often each row of the whole batch ran."""
        found: Counter[str] = Counter()
        for machine in self.machines.values():
            found.update(own(machine.engine.marks(), PREFIX))
        return found

    def self_stops(self) -> int:
        """How often a worker gave up by itself what it held, because no heartbeat was answered in time."""
        logs = [machine.process.log.read_text(errors="replace") for machine in self.machines.values()]
        return sum(len(set(SELF_STOPPED.findall(log))) for log in logs)

    def stop(self, *, seconds: float = 30) -> None:
        """Drain all that run and wait for them."""
        for machine in self.machines.values():
            if machine.process.alive:
                machine.process.send(signal.SIGTERM)
        end = time.monotonic() + seconds
        while any(machine.process.alive for machine in self.machines.values()) and time.monotonic() < end:
            time.sleep(0.05)
        for machine in self.machines.values():
            machine.engine.kill()
