"""A real nginx in front of an API, with the configuration that docs/operate/tls.md shows to an operator."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.authority import PAGE, Authority

START_SECONDS = 30.0
_CONFIGURATION = re.compile(r"```nginx\n(.*?)```", re.DOTALL)
_MAIN = """\
{user}daemon off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    {page}
}}
"""


@dataclass(frozen=True)
class Front:
    """A running nginx: `port` answers by TLS, `plain` without."""

    folder: Path
    port: int
    plain: int

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def kept(self) -> list[Path]:
        """What it put on its disk of bodies and answers."""
        return [path for name in ("body", "proxy") for path in (self.folder / name).rglob("*") if path.is_file()]


def nginx() -> str | None:
    """Where nginx is; None: not on this machine."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def front(program: str, folder: Path, authority: Authority, api_port: int) -> Iterator[Front]:
    """Run nginx before the API at `api_port`."""
    folder.mkdir()
    found = Front(folder, *_free_ports())
    page = _CONFIGURATION.search(PAGE.read_text(encoding="utf-8"))
    assert page, f"{PAGE} shows no configuration of nginx"
    changes = {
        "127.0.0.1:8765": f"127.0.0.1:{api_port}",
        "listen 443 ssl": f"listen 127.0.0.1:{found.port} ssl",
        "listen 80;": f"listen 127.0.0.1:{found.plain};",
        "ssl_certificate server.pem": f"ssl_certificate {authority.certificate}",
        "ssl_certificate_key server.key": f"ssl_certificate_key {authority.key}",
    }
    text = page[1]
    for old, new in changes.items():
        assert old in text, f"{PAGE} does not say {old!r}"
        text = text.replace(old, new)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_MAIN.format(user=user, page=text))
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf"], stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_SECONDS
        while not _listens(found.port):
            assert process.poll() is None, (folder / "nginx.log").read_text()
            assert time.monotonic() < end, (folder / "nginx.log").read_text()
            time.sleep(0.02)
        yield found
    finally:
        process.terminate()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports: tuple[int, int] = one.getsockname()[1], other.getsockname()[1]
        return ports
