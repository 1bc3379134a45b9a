"""`python -m app.api`: what `gpuyard serve` starts. `migrate` as its argument brings the schema up, and ends.

`check` says on standard output, as JSON, whether database, schema and contents can be used: for `gpuyard doctor`.
"""

import argparse
import json
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from app.api.http_wire import HttpWire
from app.api.main import begin, close_listeners, create_app
from app.db import schema
from app.db.schema import SchemaMismatch
from app.db.store import DatabaseUnavailable, Store
from app.services import beginnings, readiness, tokens
from app.services.opening import open_yard
from config.logging import configure
from config.settings import ServerSettings, load
from config.sources import SettingsError

KEEP_ALIVE_SECONDS = 75
"""Longer than any client of ours keeps an idle connection: a call into a closing one is a call lost."""
STOP_SECONDS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives the exit code."""
    asked = _parser().parse_args(arguments)
    given = {name: getattr(asked, name) for name in ("host", "port", "tls_cert", "tls_key")}
    try:
        settings = load(ServerSettings, cli={name: value for name, value in given.items() if value is not None})
        if asked.verb == "migrate":
            return _migrate(settings)
        if asked.verb == "check":
            return _check(settings)
        configure("api", level=settings.log_level, as_json=settings.log_json)
        _prepare(settings, init=asked.init)
    except (SettingsError, SchemaMismatch, DatabaseUnavailable) as error:
        print(f"gpuyard: {error}", file=sys.stderr)
        return 1
    return _serve(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuyard serve", description="The API and its schema.")
    parser.add_argument("verb", nargs="?", choices=("serve", "migrate", "check"), default="serve")
    parser.add_argument("--init", action="store_true", help="make the first admin key, if there is none, and print it")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    return parser


def _migrate(settings: ServerSettings) -> int:
    store = Store(settings.database_url.get_secret_value())
    try:
        print(f"gpuyard: the schema is at revision {schema.migrate(store)}")
    finally:
        store.close()
    return 0


def _check(settings: ServerSettings) -> int:
    yard = open_yard(settings)
    try:
        found = readiness.look(yard)
    finally:
        yard.store.close()
    print(json.dumps(asdict(found)))
    return 0 if found.ready else 1


def _prepare(settings: ServerSettings, *, init: bool) -> None:
    """Find out now, in one line, what would stop the server; make the first key when asked to."""
    yard = open_yard(settings)
    try:
        begin(yard, settings)
        secret = tokens.new_secret()
        if init and beginnings.first_key(yard, secret):
            print(f"gpuyard: the first admin key, shown once: {secret}", flush=True)
        elif init:
            print("gpuyard: there are keys already; none was made", flush=True)
    finally:
        yard.store.close()


class _Server(uvicorn.Server):
    """uvicorn waits for the calls under way before it ends; those that only wait for a bell are answered first."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        if isinstance(self.config.app, FastAPI):
            close_listeners(self.config.app)
        await super().shutdown(sockets)


def _take_all_the_files_there_are() -> None:
    """Each worker that waits for a bell is an open socket: 1024, which many systems begin with, is soon too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _serve(settings: ServerSettings) -> int:
    server = _Server(
        uvicorn.Config(
            create_app(settings),
            host=settings.host,
            port=settings.port,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            proxy_headers=settings.tls == "proxy",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            access_log=False,
            server_header=False,
            log_config=None,
            http=HttpWire,
            ws="none",
        )
    )
    _take_all_the_files_there_are()
    # uvicorn stops gently at either signal and then raises it again, for whoever had it before.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
