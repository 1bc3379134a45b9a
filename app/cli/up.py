"""`gpuyard up`: everything on this machine, until Ctrl-C."""

import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console

from app.cli.errors import CliError, require_extra
from app.local.broker import LocalBroker, local_broker
from app.local.keys import Keys
from app.local.locks import claim, runs_on
from app.local.parts import Plan
from app.local.stack import Stack
from config import places
from config.settings import ServerSettings, WorkerSettings, load
from config.sources import PREFIX

FLOWER_PORT = 5555


def up(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of database, blobs, logs and broker (~/.local/share/gpuyard; as root /var/lib/gpuyard)."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address of the API (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API (8765); 0 = a free one.")] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of the workers, and the default pool (gpu).")] = None,
    workers: Annotated[int, typer.Option(min=0, help="GPU workers to start.")] = 1,
    runtime: Annotated[
        str | None,
        typer.Option(help="auto (Ollama, else vLLM, else local), ollama, vllm, local, fake, or package.module:Class."),
    ] = None,
    runtime_url: Annotated[list[str] | None, typer.Option(help="URL of a runtime; may be given several times.")] = None,
    max_concurrent_prompts: Annotated[
        str | None, typer.Option(help="Rows at the runtime at once: auto or a number.")
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Start no GPU worker.")] = False,
    flower: Annotated[bool, typer.Option("--flower", help="Start Flower, too.")] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON file (0600) with URLs, keys and pids, written when all is ready."),
    ] = None,
) -> None:
    """Run everything on this machine: broker, API, control worker, beat and GPU workers."""
    require_extra("server", "fastapi", "uvicorn", "sqlmodel", "alembic")
    server = load(ServerSettings, cli={"data_dir": data, "host": host, "port": port, "pool": pool})
    worker = load(
        WorkerSettings,
        cli={
            "runtime": runtime,
            "runtime_url": tuple(runtime_url) if runtime_url else None,
            "max_concurrent_prompts": max_concurrent_prompts,
            "pool": pool,
        },
    )
    if flower:
        require_extra("flower", "flower")
    given = {
        "runtime": runtime,
        "runtime_url": ",".join(runtime_url) if runtime_url else None,
        "max_concurrent_prompts": max_concurrent_prompts,
        "host": host,
    }
    with claim(server.data_dir) as claimed:
        chosen = free_port(server.host, server.port)
        broker = None if server.broker_url else local_broker(server.data_dir)
        plan = Plan(
            data_dir=server.data_dir,
            url=url_of(server, chosen),
            broker_url=broker_url(server, broker),
            pool=server.pool,
            given={PREFIX + name.upper(): value for name, value in given.items() if value is not None}
            | {"GPUYARD_PORT": str(chosen)},
            workers=0 if no_worker else workers,
            worker_name=worker.worker_name,
            drain_seconds=worker.drain_seconds,
            kill_after_seconds=worker.kill_after_seconds,
            flower_port=free_port("127.0.0.1", FLOWER_PORT, or_any=True) if flower else None,
        )
        admin = server.bootstrap_token.get_secret_value() if server.bootstrap_token else None
        keys = Keys(server.data_dir / "keys.json", admin=admin)
        with Screen() as screen:
            files = command_files(server.data_dir, screen) + ([ready_file.absolute()] if ready_file else [])
            stack = Stack(plan, claim=claimed, keys=keys, broker=broker, say=screen.say, files=files)
            with stop_on_signals(stack.ask_to_stop, screen.stop_asked):
                stack.run()


def command_files(data_dir: Path, screen: "Screen") -> list[Path]:
    """Where commands look for this installation: its own folder, and the usual one unless another `up` runs there."""
    own, usual = places.local_file(data_dir), places.local_file(places.data_dir())
    if own != usual and runs_on(usual.parent):
        screen.note(
            f"commands on this machine go to the gpuyard of {usual.parent}; "
            f"GPUYARD_DATA_DIR={data_dir.absolute()} leads them here"
        )
        return [own]
    return list(dict.fromkeys([own, usual]))


def url_of(server: ServerSettings, port: int) -> str:
    """The URL under which this machine reaches the API."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - compared, not bound
    scheme = "https" if server.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def broker_url(server: ServerSettings, broker: LocalBroker | None) -> str:
    """The broker that was given, else the one to be started."""
    if server.broker_url is not None:
        return server.broker_url.get_secret_value()
    if broker is None:
        raise CliError("no broker")
    return broker.url


def free_port(host: str, port: int, *, or_any: bool = False) -> int:
    """`port` when it is free, a free one for 0 (and, with `or_any`, instead of one in use). Raises CliError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and or_any:
                return free_port(host, 0)
            if error.errno == errno.EADDRINUSE:
                raise CliError(f"port {port} of {host} is in use: name another by --port (0 = a free one)") from None
            raise CliError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        return int(probe.getsockname()[1])


@contextmanager
def stop_on_signals(*asked: Callable[[], None]) -> Iterator[None]:
    """Tell each of `asked` of Ctrl-C, SIGTERM and a closed terminal: the first stops, a second one hurries."""

    def ask(_number: int, _frame: Any) -> None:
        for tell in asked:
            tell()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Screen:
    """What the user sees: on a terminal one line that changes, else one line a step.

    A terminal that is gone, or a disk that takes no more lines, ends nothing.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status = self._console.status("starting")
        self._key = "Ctrl-C drains"

    def __enter__(self) -> Self:
        """Show the line."""
        if self._console.is_terminal:
            with suppress(OSError):
                self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        with suppress(OSError):
            self._status.stop()

    def stop_asked(self) -> None:
        """Say from now on what Ctrl-C does next. For a signal's handler."""
        self._key = "another Ctrl-C does not wait"

    def note(self, text: str) -> None:
        """Show a line that stays."""
        with suppress(OSError):
            self._console.print(f"gpuyard: {text}", highlight=False, soft_wrap=True)

    def say(self, step: str) -> None:
        """Show a step."""
        if self._console.is_terminal:
            with suppress(OSError):
                self._status.update(f"gpuyard: {step} · {self._key}")
        else:
            self.note(step)
