"""A network of machines that exist for one test: network namespaces with a host name each, on one switch.

A namespace lives as long as a process that sleeps in it, and those end with the guard: whatever ends the tests leaves
nothing behind, and this machine's own network is never touched.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from app.local.guard import Guard
from tests.e2e.yard import until

SUBNET = "10.99.0"
_CLONE_NEWNET = 0x40000000
_NOBODY = "02:00:00:00:00:01"
"""A hardware address that no machine here has."""
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Say what keeps this machine from having such a network; None: nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        made = subprocess.run(
            ["unshare", "--net", "--uts", "ip", "link", "add", "port", "type", "veth"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return "there is no unshare or no ip (on Debian: apt-get install iproute2)"
    return None if made.returncode == 0 else f"no network namespace can be made: {made.stderr.decode().strip()}"


class Host:
    """One machine, known by its name; `pid` sleeps in its namespaces."""

    def __init__(self, name: str, address: str, pid: int) -> None:
        self.name = name
        self.address = address
        self.pid = pid

    def argv(self, argv: Sequence[str]) -> list[str]:
        """Make it a command that runs on this machine."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--uts=/proc/{self.pid}/ns/uts", "--", *argv]

    def run(self, *argv: str) -> None:
        done = subprocess.run(self.argv(argv), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be on this machine, as far as sockets go that this thread opens within."""
        with Path("/proc/thread-self/ns/net").open() as before, Path(f"/proc/{self.pid}/ns/net").open() as there:
            _set_network(there)
            try:
                yield
            finally:
                _set_network(before)


class Network:
    """A switch and the machines on it, `SUBNET.1` upwards in the order of their names."""

    def __init__(self, guard: Guard, log: Path, names: Sequence[str]) -> None:
        self._guard = guard
        self._log = log
        self._asleep: list[subprocess.Popen[bytes]] = []
        self._switch = self._machine("switch", "")
        self._switch.run("ip", "link", "add", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        self.hosts = {name: self._plugged_in(name, number) for number, name in enumerate(names, start=1)}

    def __getitem__(self, name: str) -> Host:
        """The machine of that name."""
        return self.hosts[name]

    def close(self) -> None:
        """Take it all away."""
        for process in self._asleep:
            process.kill()
            process.wait(10)

    @contextmanager
    def cut(self, name: str, *others: str) -> Iterator[None]:
        """Have every packet between `name` and each of `others` vanish without a word, in both directions.

        Each side sends to a hardware address that nobody has, so that no socket learns of it, as behind a router.
        """
        with ExitStack() as mended:
            for other in others:
                for here, there in ((name, other), (other, name)):
                    entry = (self[there].address, "dev", "eth0")
                    self[here].run("ip", "neigh", "replace", *entry, "lladdr", _NOBODY, "nud", "permanent")
                    mended.callback(self[here].run, "ip", "neigh", "del", *entry)
            yield

    def _plugged_in(self, name: str, number: int) -> Host:
        host = self._machine(name, f"{SUBNET}.{number}")
        peer = ("peer", "name", "eth0", "netns", str(host.pid))
        self._switch.run("ip", "link", "add", f"port{number}", "type", "veth", *peer)
        self._switch.run("ip", "link", "set", f"port{number}", "master", "switch", "up")
        host.run("hostname", name)
        host.run("ip", "link", "set", "lo", "up")
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        return host

    def _machine(self, name: str, address: str) -> Host:
        argv = ["unshare", "--net", "--uts", "sleep", "infinity"]
        with self._log.open("ab") as log:
            self._asleep.append(self._guard.spawn(argv, env=os.environ, log=log, cwd=self._log.parent))
        pid = self._asleep[-1].pid
        ours = Path("/proc/self/ns/uts").readlink()
        until(lambda: Path(f"/proc/{pid}/ns/uts").readlink() != ours, f"{name} has namespaces of its own")
        return Host(name, address, pid)


def _set_network(namespace: IO[str]) -> None:
    if _libc.setns(namespace.fileno(), _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
