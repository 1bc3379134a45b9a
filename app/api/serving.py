"""One API process: what would stop it is found before it listens, then it serves until it is told to stop."""

import asyncio
import errno
import resource
import signal
import socket
import ssl
import sys
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.api.http_wire import HttpWire, log_full
from app.api.main import begin, close_listeners, create_app
from app.services import beginnings, tokens
from app.services.opening import open_yard
from config.collector import spare_what_is_imported
from config.errors import SettingsError
from config.settings import ServerSettings

KEEP_ALIVE_SECONDS = 75
"""Longer than any client of ours keeps an idle connection: a call into a closing one is a call lost."""
STOP_SECONDS = 10
TURN_SECONDS = 0.0005
"""A thread that computes lets another one run after so long. A heartbeat takes some thirty turns, one for each step to
the database and back; with Python's own 5 ms it waited seconds while a dozen threads wrote long lists."""


def prepare(settings: ServerSettings, *, init: bool) -> None:
    """Find out now, in one line, what would stop the server; make the first key when asked to.

    Raises SettingsError for a certificate that cannot be used, SchemaMismatch, DatabaseUnavailable, BlobUnavailable.
    """
    check_certificate(settings)
    yard = open_yard(settings)
    try:
        begin(yard, settings)
        secret = tokens.new_secret()
        if init and beginnings.first_key(yard, secret):
            print(f"gpuyard: the first admin key, shown once: {secret}", flush=True)  # noqa: T201 - for who starts it
        elif init:
            print("gpuyard: there are keys already; none was made", flush=True)  # noqa: T201 - as above
    finally:
        yard.store.close()


def check_certificate(settings: ServerSettings) -> None:
    """Load certificate and key as the server will. Raises SettingsError, which names the files."""
    if settings.tls_cert is None:
        return
    try:
        # An encrypted key would have OpenSSL ask the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_cert, settings.tls_key, password=lambda: b""
        )
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} cannot be used: {error}"
        ) from None


class _Server(uvicorn.Server):
    """uvicorn waits for the calls under way before it ends; those that only wait for a bell are answered first."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        asyncio.get_running_loop().set_exception_handler(_log_in_a_line)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        if isinstance(self.config.app, FastAPI):
            close_listeners(self.config.app)
        await super().shutdown(sockets)


def _log_in_a_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Without files asyncio accepts nothing for a second, and hands a traceback to this for each that it did not."""
    error = context.get("exception")
    if "socket" in context and isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        log_full("connections wait until one of them ends")
    else:
        loop.default_exception_handler(context)


def _take_all_the_files_there_are() -> None:
    """Each worker that waits for a bell is an open socket: 1024, which many systems begin with, is soon too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(settings: ServerSettings) -> int:
    """Serve until a signal; gives the exit code."""
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
    sys.setswitchinterval(TURN_SECONDS)
    spare_what_is_imported()
    # uvicorn stops gently at either signal and then raises it again, for whoever had it before.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    server.run()
    return 0 if server.started else 1
