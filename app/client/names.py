"""Looking a host's name up takes no longer than a connection may: the C library's own patience can be minutes (BY-05).

A heartbeat, a goodbye or a claim that hangs in `getaddrinfo` cannot be cut, so each look-up has a thread of its own.
"""

import ipaddress
import socket
import threading
import time
from collections.abc import Iterable

import httpcore


class _LookUp:
    """One name that is being looked up; all who want it meanwhile wait for the same answer."""

    def __init__(self, host: str, port: int) -> None:
        self._where = (host, port)
        self._done = threading.Event()
        self._addresses: list[str] = []
        self._error: OSError | None = None
        threading.Thread(target=self._run, name="gpuyard-look-up", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether it has come to an end."""
        return self._done.is_set()

    def wait(self, seconds: float | None) -> list[str]:
        """Give the addresses. Raises httpcore's errors, which are those of a connection that fails."""
        if not self._done.wait(seconds):
            raise httpcore.ConnectTimeout(f"looking up {self._where[0]} took more than {seconds:g} s")
        if self._error is not None:
            raise httpcore.ConnectError(f"cannot look up {self._where[0]}: {self._error}") from self._error
        return self._addresses

    def _run(self) -> None:
        try:
            found = socket.getaddrinfo(*self._where, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        except OSError as error:
            self._error = error
        finally:
            self._done.set()


class PatientNames(httpcore.SyncBackend):
    """httpcore's own sockets, connected to addresses that were looked up within the connection's time. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._look_ups: dict[tuple[str, int], _LookUp] = {}

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers. TLS is still asked for the host's name."""
        if _is_address(host):
            return super().connect_tcp(host, port, timeout, local_address, socket_options)
        began = time.monotonic()
        failure: Exception | None = None
        for address in self._look_up(host, port).wait(timeout):
            left = None if timeout is None else max(0.1, timeout - (time.monotonic() - began))
            try:
                return super().connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError(f"{host} has no address")

    def _look_up(self, host: str, port: int) -> _LookUp:
        """Begin to look, or join who is looking: while a name server is away there is one thread and no more."""
        with self._lock:
            found = self._look_ups.get((host, port))
            if found is None or found.is_done:
                found = self._look_ups[host, port] = _LookUp(host, port)
            return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
