"""A whole installation on one machine: started in order, kept running, stopped in the opposite order.

Start: guard, broker, then API (and schema), control worker and beat together, keys, GPU workers, Flower.
Stop: GPU workers (they drain), then Flower, control worker, beat and API together, the broker last.
One thread drives everything; every wait watches all children.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from app.local import private_files
from app.local.broker import LocalBroker, listening
from app.local.children import Child, Part
from app.local.control_plane import CertificateRefused, ControlPlane, KeyRefused, NotReady, not_trusted
from app.local.errors import BrokerError, StackError
from app.local.guard import Guard
from app.local.keys import Keys
from app.local.locks import LEFTOVERS_SECONDS
from app.local.parts import Plan

TICK_SECONDS = 0.1
START_SECONDS = 120.0
"""A step of the start that takes longer has failed."""
FAILED_STOP_SECONDS = 2.0
"""What has not served anybody yet gets so long to end when the start has failed: its reason is waited for."""


class StopAsked(Exception):
    """A stop was asked for while the start was under way."""


class Stack:
    """One installation's processes.

    `claim` is the descriptor of `locks.claim`, which every child inherits; `say` is told each step in one line; each of
    `files` gets the ready file's content.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        claim: int,
        keys: Keys,
        broker: LocalBroker | None,
        say: Callable[[str], None],
        files: Sequence[Path] = (),
    ) -> None:
        self.plan = plan
        self._claim = claim
        self._broker = broker
        self._say = say
        self._files = tuple(files)
        self._keys = keys
        self._worker_key: str | None = None
        self._broker_lock: int | None = None
        self._guard: Guard | None = None
        self._children: dict[str, Child] = {}
        self._stops_asked = 0
        self._failed = False
        self._written: dict[Path, dict[str, object]] = {}
        self._unwritten = ""

    def ask_to_stop(self) -> None:
        """Stop: asked once it drains, asked again it ends everything now. Safe in a signal handler."""
        self._stops_asked += 1

    def run(self) -> None:
        """Start, watch until asked to stop, stop. Raises StackError when it cannot start; nothing runs afterwards."""
        try:
            self._prepare()
            self._guard = Guard()
            self._start()
            shown = ""
            while not self._stops_asked:
                self._write_files()
                if (now := self.status()) != shown:
                    shown = now
                    self._say(f"{self.plan.url} is up: {now}")
                self._tick()
        except StopAsked:
            pass
        except StackError:
            self._failed = True
            raise
        finally:
            self._stop()
            self._release()

    def status(self) -> str:
        """All parts in one line."""
        return " · ".join(
            name if child.running and not child.restarts else f"{name} ({_state(child)})"
            for name, child in self._children.items()
        )

    # ── start ──

    def _prepare(self) -> None:
        (self.plan.data_dir / "logs").mkdir(mode=0o700, exist_ok=True)
        for path in self._files:
            path.unlink(missing_ok=True)

    def _start(self) -> None:
        inherited = (self._claim,)
        if self._broker is not None:
            self._start_broker(self._broker, inherited)
        self._run(self.plan.api(admin_key=self._keys.admin(), locks=inherited))
        self._run(self.plan.control(locks=inherited))
        self._run(self.plan.beat(locks=inherited))
        control_plane = ControlPlane(self.plan.url, key=self._keys.admin())
        try:
            self._wait("the API answers", control_plane.ready)
            worker_key = self._worker_key = self._keys.worker(
                control_plane.create_worker_key, is_known=control_plane.knows
            )
            started_at = time.time()
            numbers = range(1, self.plan.workers + 1)
            for number in numbers:
                self._run(self.plan.worker(number, key=worker_key, locks=inherited))
            names = [self.plan.name_of(number) for number in numbers]
            self._wait("the control worker listens", lambda: self._listens("gpuyard-control", 1))
            self._wait("the workers are registered", lambda: control_plane.registered(names, since=started_at))
            self._wait("the workers listen", lambda: self._listens("gpuyard-worker", len(names)))
            if self.plan.flower_port is not None:
                self._run(self.plan.flower(locks=inherited))
                self._wait("Flower shows the workers", lambda: self._flower_shows(len(names) + 1))
        except KeyRefused:
            raise StackError(
                f"the database does not know the admin key of {self._keys.path}: set GPUYARD_BOOTSTRAP_TOKEN to an "
                "admin key of this database, or use a data folder of its own"
            ) from None
        except NotReady as error:
            raise StackError(f"the API is not ready: {error}") from None
        except CertificateRefused as error:
            raise StackError(not_trusted(self.plan.url, str(error))) from error
        except httpx.HTTPError as error:
            raise StackError(f"the API refuses to make a worker key: {error}") from error
        finally:
            control_plane.close()

    def _start_broker(self, broker: LocalBroker, inherited: tuple[int, ...]) -> None:
        try:
            lock = broker.lock(wait_seconds=LEFTOVERS_SECONDS)
        except BrokerError as error:
            raise StackError(str(error)) from error
        self._broker_lock = lock
        self._run(Part("broker", broker.argv, dict(os.environ), inherit=(*inherited, lock)))
        self._wait("the broker answers", broker.answers)

    def _listens(self, client_name: str, count: int) -> bool:
        found = listening(self.plan.broker_url, client_name)
        return found is None or found >= count

    def _flower_shows(self, count: int) -> bool:
        """Whether Flower knows this many Celery workers: it asks who is there at its start, and when it is told to."""
        with suppress(httpx.TransportError, ValueError):
            url = f"http://127.0.0.1:{self.plan.flower_port}/api/workers"
            return len(httpx.get(url, params={"refresh": 1}, timeout=10, trust_env=False).json()) >= count
        return False

    def _run(self, part: Part) -> Child:
        if self._guard is None:
            raise RuntimeError("children are started by `run` only")
        child = Child(part, guard=self._guard, logs=self.plan.data_dir / "logs", cwd=self.plan.data_dir)
        child.start()
        self._children[part.name] = child
        return child

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a step of the start. A child that ends meanwhile is its failure: it would only end again."""
        self._say(f"waiting until {what}")
        until = time.monotonic() + START_SECONDS
        while not condition():
            if self._stops_asked:
                raise StopAsked
            for child in self._children.values():
                if child.ended():
                    reason = child.reason()
                    line = "\n" if "\n" in reason else " "
                    raise StackError(f"{child.part.name} ended ({child.last_exit}):{line}{reason}")
            if time.monotonic() > until:
                raise StackError(f"{what}: not within {START_SECONDS:g} s; see {self.plan.data_dir / 'logs'}")
            time.sleep(TICK_SECONDS)

    # ── run ──

    def _tick(self) -> None:
        if self._guard is not None:
            self._guard.check()
        for child in self._children.values():
            child.poll()
        time.sleep(TICK_SECONDS)

    def _write_files(self) -> None:
        """Say where everything is; again when a process was replaced, and as soon as the disk takes it.

        Raises OSError for a place that never took one: nobody would learn where this installation is.
        """
        content = self._ready_content()
        unwritten = ""
        for path in self._files:
            if content == self._written.get(path):
                continue
            try:
                if self._is_ours(path):
                    private_files.write(path, content)
            except OSError as error:
                if path not in self._written:
                    raise
                unwritten = f"{path} cannot be brought up to date: {error.strerror}"
            else:
                self._written[path] = content
        if unwritten not in ("", self._unwritten):
            self._say(unwritten)
        self._unwritten = unwritten

    def _is_ours(self, path: Path) -> bool:
        """Whether nobody has replaced what was written there: the usual place goes to the `up` whose folder it is."""
        with suppress(ValueError, OSError):
            return path not in self._written or private_files.read(path) in ({}, self._written[path])
        return True

    def _ready_content(self) -> dict[str, object]:
        pids = {name: child.pid for name, child in self._children.items() if not name.startswith("worker-")}
        workers = [child.pid for name, child in self._children.items() if name.startswith("worker-")]
        flower = self.plan.flower_port
        return {
            "url": self.plan.url,
            "api_key": self._keys.admin(),
            "worker_key": self._worker_key,
            "broker_url": self.plan.broker_url,
            "flower_url": None if flower is None else f"http://127.0.0.1:{flower}",
            "pids": {"broker": None} | pids | {"workers": workers},
        }

    # ── stop ──

    def _stop(self) -> None:
        for path in self._files:
            if self._is_ours(path):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        workers = [name for name in self._children if name.startswith("worker-")]
        if workers and self._written:
            self._say(f"rows in flight get up to {self.plan.drain_seconds:g} s to finish; a second Ctrl-C hurries")
        for names in (workers, ["flower", "control", "beat", "api"], ["broker"]):
            self._stop_together([self._children[name] for name in names if name in self._children])

    def _stop_together(self, children: list[Child]) -> None:
        if not children:
            return
        self._say("stopping " + ", ".join(child.part.name for child in children))
        hurried = self._stops_asked > 1
        seconds = FAILED_STOP_SECONDS if self._failed else self.plan.kill_after_seconds if hurried else None
        for child in children:
            child.stop(within_seconds=seconds)
        while not all([child.stopped() for child in children]):  # noqa: C419 - each must be looked at
            if self._stops_asked > 1 and not hurried:
                hurried = True
                for child in children:
                    child.stop(within_seconds=self.plan.kill_after_seconds)
            time.sleep(TICK_SECONDS / 2)

    def _release(self) -> None:
        if self._guard is not None:
            self._guard.close()
        if self._broker_lock is not None:
            os.close(self._broker_lock)


def _state(child: Child) -> str:
    if child.running:
        return f"restarted {child.restarts}x"
    why = f" when it can ({child.problem})" if child.problem else ""
    return f"ended with {child.last_exit}, starts again{why}"
