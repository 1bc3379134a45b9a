"""A broker as an operator would let it listen: an account for each side and, when asked for, TLS.

The server inside the wheel knows no TLS, so a front ends it there, as stunnel would: what a client sees is the same.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from redis import Redis
from redis.exceptions import RedisError

from app.local.broker import find_server
from config.broker_acl import line_of, user_of
from tests.authority import Authority

START_SECONDS = 30.0
ADMIN = "admin"


def password_of(queue: str) -> str:
    return f"secret of {queue}"


def server_with_tls() -> Path | None:
    """A server that was built with TLS, as Debian's redis-server is; None when there is none on PATH."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found and "libssl" in subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout:
            return Path(found)
    return None


@dataclass
class SecuredBroker:
    """A running broker. Nobody gets in without a name and a password.

    It answers at 127.0.0.2 as well, which its certificate does not name.
    """

    port: int
    socket: Path
    authority: Authority | None
    db: int = 0

    def url(self, queue: str, *, host: str = "127.0.0.1", ca: Path | None = None) -> str:
        """How the account of a pool, or of `control`, connects."""
        account = f"{user_of(queue)}:{quote(password_of(queue))}"
        if self.authority is None:
            return f"redis://{account}@{host}:{self.port}/{self.db}"
        options = f"ssl_cert_reqs=required&ssl_ca_certs={ca or self.authority.ca}"
        return f"rediss://{account}@{host}:{self.port}/{self.db}?{options}"

    def admin(self) -> Redis:
        """Connect as who may do everything, past TLS."""
        return Redis(unix_socket_path=str(self.socket), username=ADMIN, password=password_of(ADMIN), db=self.db)

    def refused(self) -> list[str]:
        """What the accounts were refused: who, and the command, key or channel."""
        with self.admin() as redis:
            return [f"{entry['username']}: {entry['context']} {entry['object']}" for entry in redis.acl_log()]


@contextmanager
def secured_broker(
    folder: Path, *pools: str, authority: Authority | None = None, server: Path | None = None, db: int = 0
) -> Iterator[SecuredBroker]:
    """Run one with accounts for these pools and the control plane. With `server` it does TLS by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    port, path = _free_port(), folder / "b.sock"
    inner = port if authority is None or server else _free_port()
    argv = [str(server or find_server()), "--bind", "127.0.0.1", "127.0.0.2", "--unixsocket", str(path), "--save", ""]
    argv += ["--dir", str(folder), "--aclfile", str(_acl_file(folder, pools, db))]
    if authority is not None and server is not None:
        argv += ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"]
        argv += ["--tls-cert-file", str(authority.certificate), "--tls-key-file", str(authority.key)]
    else:
        argv += ["--port", str(inner)]
    with (folder / "broker.log").open("wb") as log:
        processes = [subprocess.Popen(argv, stdout=log, stderr=log)]
        if inner != port and authority is not None:
            front = Path(__file__).parent / "fakes" / "tls_front.py"
            options = [str(port), str(inner), str(authority.certificate), str(authority.key)]
            processes.append(subprocess.Popen([sys.executable, str(front), *options], stdout=log, stderr=log))
    found = SecuredBroker(port, path, authority, db)
    try:
        _until_it_answers(found, processes, folder / "broker.log")
        yield found
    finally:
        for process in processes:
            process.kill()
            process.wait(10)


def _acl_file(folder: Path, pools: tuple[str, ...], db: int) -> Path:
    def digest(queue: str) -> str:
        return hashlib.sha256(password_of(queue).encode()).hexdigest()

    lines = ["user default off", f"user {ADMIN} on #{digest(ADMIN)} allkeys allchannels allcommands"]
    lines += [line_of(queue, (digest(queue),), db=db) for queue in ("control", *pools)]
    file = folder / "users.acl"
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o600)
    return file


def _until_it_answers(broker: SecuredBroker, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not (_answers(broker) and _listens(broker.port)):
        assert all(process.poll() is None for process in processes), log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.02)


def _answers(broker: SecuredBroker) -> bool:
    try:
        with broker.admin() as redis:
            return bool(redis.ping())
    except RedisError:
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == os.EX_OK


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port
