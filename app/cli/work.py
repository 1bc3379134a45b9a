"""`gpuyard worker --transport …`: become a worker, the worker side's own program in this process's place (DESIGN 3)."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import app
from app.cli.errors import CliError, ExitCode

_ROOT = str(Path(app.__file__).parents[1])
_TRANSPORTS = ("http", "celery")


def work(
    context: typer.Context,
    transport: Annotated[
        str | None,
        typer.Option(help="http: no broker, hears of work by polls; celery: as `celery -A app worker -Q POOL`."),
    ] = None,
    pool: Annotated[str | None, typer.Option(help="The pool to serve (default: gpu).")] = None,
    name: Annotated[str | None, typer.Option(help="Name of this worker.")] = None,
    server_url: Annotated[str | None, typer.Option(help="URL of the API.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Worker key (gk-…); better in GPUYARD_API_KEY.")] = None,
    runtime: Annotated[
        str | None, typer.Option(help="auto, ollama, vllm, local, fake or package.module:Class.")
    ] = None,
    runtime_url: Annotated[list[str] | None, typer.Option(help="URL of a runtime; may be given several times.")] = None,
    max_concurrent_prompts: Annotated[str | None, typer.Option(help="auto or a number.")] = None,
    state_dir: Annotated[Path | None, typer.Option(help="The worker's identity and spool.")] = None,
    machine_id: Annotated[str | None, typer.Option(help="Name of the machine; auto = its host name.")] = None,
    slots_batches: Annotated[int | None, typer.Option(help="Batches worked on at once.")] = None,
    max_invocations: Annotated[int | None, typer.Option(help="Jobs at once, of all kinds; 0 = no bound.")] = None,
    row_timeout_seconds: Annotated[float | None, typer.Option(help="Longest time of one row.")] = None,
    keep_alive_seconds: Annotated[
        float | None, typer.Option(help="Leave after so long without work; -1 = stay.")
    ] = None,
    drain_seconds: Annotated[float | None, typer.Option(help="What rows in flight get when it leaves.")] = None,
    wait_max_seconds: Annotated[float | None, typer.Option(help="Longest wait of one poll.")] = None,
    retry_min_seconds: Annotated[float | None, typer.Option(help="First wait after a failed poll; doubles.")] = None,
    retry_max_seconds: Annotated[float | None, typer.Option(help="Longest wait after a failed poll.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Workers: list, show, drain, reset; and, with `--transport`, be one. Each option is a setting, too."""
    given: dict[str, object] = {
        "pool": pool,
        "worker_name": name,
        "server_url": server_url,
        "api_key": api_key,
        "runtime": runtime,
        "runtime_url": ",".join(runtime_url) if runtime_url else None,
        "max_concurrent_prompts": max_concurrent_prompts,
        "state_dir": state_dir.absolute() if state_dir is not None else None,
        "machine_id": machine_id,
        "slots_batches": slots_batches,
        "max_invocations": max_invocations,
        "row_timeout_seconds": row_timeout_seconds,
        "keep_alive_seconds": keep_alive_seconds,
        "drain_seconds": drain_seconds,
        "wait_max_seconds": wait_max_seconds,
        "retry_min_seconds": retry_min_seconds,
        "retry_max_seconds": retry_max_seconds,
        "log_level": log_level,
    }
    said = {key: str(value) for key, value in given.items() if value is not None}
    if context.invoked_subcommand is not None:
        if transport or said:
            raise CliError(
                "options of a worker go with --transport, not with a command of `gpuyard worker`",
                exit_code=ExitCode.USAGE,
            )
        return
    if transport not in _TRANSPORTS:
        raise CliError(
            "say how the worker hears of work: --transport http, or --transport celery (or a command: list, show, "
            "drain, reset)",
            exit_code=ExitCode.USAGE,
        )
    _become(transport, said)


def _become(transport: str, said: Mapping[str, str]) -> NoReturn:
    """Give options as settings of the environment: a key stays out of the list of processes."""
    path = os.pathsep.join(part for part in (_ROOT, os.environ.get("PYTHONPATH", "")) if part)
    settings = {f"GPUYARD_{name.upper()}": value for name, value in said.items()}
    if transport == "http":
        argv = [sys.executable, "-m", "app.worker"]
    else:
        argv = [sys.executable, "-m", "app.local.celery_command", "-A", "app", "worker", "-Q", _pool(said)]
    os.execve(sys.executable, argv, os.environ | settings | {"PYTHONPATH": path})  # noqa: S606 - our own program, no shell


def _pool(said: Mapping[str, str]) -> str:
    """Celery takes the queue from its command line alone."""
    from config.settings import WorkerSettings, load  # noqa: PLC0415 - the other commands read no worker's settings

    return load(WorkerSettings, cli={"pool": said.get("pool")}).pool
