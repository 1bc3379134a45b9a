"""Settings: one frozen class a process role, read once at an entry point by `load` (DESIGN 10).

Precedence: command line > environment `GPUYARD_*` > file `gpuyard.toml` > what a local `gpuyard up` left (the CLI
only) > defaults. Library modules take the values they need as arguments and never call `load`.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, PositiveInt, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import NoDecode

from app.domain.jobs import MAX_SHARD_ROWS
from app.domain.webhooks import networks
from config import places
from config.broker_url import is_loopback
from config.errors import SettingsError
from config.fields import (
    BrokerSettings,
    Common,
    DataDirSettings,
    MetricsSettings,
    PoolNameSettings,
    Seconds,
    ServerAddressSettings,
    SlotSettings,
    SweepSettings,
    TimingSettings,
    sqlite_in,
)
from config.keys import fit_for_a_header
from config.org_limits import OrgLimitSettings
from config.pools import PoolSettings
from config.queues import check_pool_name
from config.retention import RetentionSettings
from config.sources import Layer, layers, nearest
from config.trust import check_authorities

MIB = 1024 * 1024


class ServerSettings(
    OrgLimitSettings,
    SweepSettings,
    BrokerSettings,
    PoolNameSettings,
    DataDirSettings,
    MetricsSettings,
    RetentionSettings,
):
    """API, control worker, migrations and sweeps."""

    database_url: SecretStr = Field(
        default_factory=sqlite_in,
        description="SQLAlchemy URL: sqlite:///FILE, or postgresql+psycopg://… for more than one machine.",
        json_schema_extra={"default": "sqlite in data_dir"},
    )
    host: str = Field("127.0.0.1", description="Address the API listens on; only a loopback address goes without TLS.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8765, description="Port of the API; 0 = a free one.")
    tls: Literal["proxy"] | None = Field(None, description="`proxy`: a TLS proxy stands in front of the API.")
    tls_cert: Path | None = Field(
        None, description="Certificate chain (PEM) of the API. In the file: tls = {cert, key}."
    )
    tls_key: Path | None = Field(None, description="Private key (PEM) of tls_cert.")
    bootstrap_token: SecretStr | None = Field(
        None, description="The first admin token (gk-…); created at start while no token exists."
    )
    bootstrap_worker_token: SecretStr | None = Field(
        None, description="A key for workers (gk-…), beside bootstrap_token; created at start unless it was before."
    )

    schema_wait_seconds: Annotated[float, Field(ge=0)] = Field(
        0, description="A process whose database has an older schema waits so long for it to be brought up, then ends."
    )
    stop_grace_seconds: Seconds = Field(
        default_factory=lambda data: 3 * data["renew_seconds"],
        description="How long a stopped shard's last hand-in and report are accepted.",
        json_schema_extra={"default": "3 * renew_seconds"},
    )
    control_threads: PositiveInt = Field(4, description="Pieces of control work a control worker does at once.")
    stand_in_seconds: Seconds = Field(
        60, description="An API process starts a control worker when work waits and none was alive for so long."
    )
    max_attempts: PositiveInt = Field(3, description="Executions of a job whose worker reports a failure.")
    max_losses: PositiveInt = Field(5, description="Lost workers a job survives (a pool may have its own).")

    shard_rows: Annotated[int, Field(gt=0, le=MAX_SHARD_ROWS)] = Field(
        256, description="Rows of a shard at most; itself at most 4096."
    )
    shard_bytes: PositiveInt = Field(16 * MIB, description="Bytes of a shard at most; a longer row is a shard alone.")
    unsupported_parameters: Literal["fail", "drop"] = Field(
        "fail",
        description="What becomes of a batch with parameters that no worker takes, unless it says so itself: `fail`, "
        "or `drop` them and say so in each row.",
    )
    cross_request_parameters: Literal["drop", "fail", "pass"] = Field(
        "drop",
        description="What becomes of parameters that reach across requests (`priority`, `keep_alive`): `drop` them and "
        "say so in each row, `fail` the batch, or `pass` them to the runtime.",
    )
    canary_rows: Annotated[int, Field(ge=0, le=1000)] = Field(
        8,
        description="Rows of a batch that run first on each worker, unless it says so itself: when all of them fail "
        "alike, the others are not run. 0: all run at once, whatever comes of them.",
    )
    max_rows: PositiveInt = Field(50_000, description="Rows of a batch at most.")
    max_file_bytes: PositiveInt = Field(200 * MIB, description="Bytes of an uploaded file at most.")
    max_line_bytes: PositiveInt = Field(64 * MIB, description="Bytes of one line of an input file at most.")
    max_models: PositiveInt = Field(100, description="Models that the rows of a batch name at most.")
    max_requirements: PositiveInt = Field(
        250,
        description="Different sets of models and parameters that the shards of a batch need at most; a file that is "
        "sorted by model needs fewer.",
    )
    webhook_networks: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Networks outside the public Internet that webhooks may be sent to, by plain HTTP too: "
        "10.1.0.0/16, 127.0.0.1/32; a comma list in the environment.",
    )
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = Field(
        10, description="Longest time of one try to deliver a webhook, all in all."
    )
    webhook_max_tries: PositiveInt = Field(
        30, description="Tries of one webhook; the waits between them grow from 5 s to 4 h, so 30 take three days."
    )
    pools: dict[str, PoolSettings] = Field(
        default_factory=dict, description="Pools by name, declared at start: [pools.NAME] tables of the file."
    )

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        if self.tls is not None and self.tls_cert is not None:
            raise ValueError(
                'tls = "proxy" is for an API that speaks plain HTTP with a TLS proxy, and tls_cert has it speak TLS '
                "itself: leave one of them out"
            )
        if self.tls_cert is not None:  # `gpuyard up` calls its own API
            check_authorities()
        if not is_loopback(self.host) and self.tls is None and self.tls_cert is None:
            raise ValueError(
                f"host {self.host} is not a loopback address: set tls_cert and tls_key, "
                'or tls = "proxy" behind a TLS proxy'
            )
        return self

    @model_validator(mode="after")
    def _pools(self) -> Self:
        for name, pool in self.pools.items():
            check_pool_name(name)
            try:
                pool.timing(kill_after_seconds=self.kill_after_seconds, sweep_seconds=self.sweep_seconds)
            except ValueError as error:
                raise ValueError(f"pools.{name}: {error}") from None
        return self

    @field_validator("webhook_networks", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        found = comma_list(value)
        if isinstance(found, (list, tuple)):
            networks([str(text) for text in found])
        return found

    @model_validator(mode="after")
    def _keys_of_their_own(self) -> Self:
        if self.bootstrap_worker_token is not None and self.bootstrap_token is None:
            raise ValueError("bootstrap_worker_token goes with bootstrap_token: somebody has to be the first admin")
        if self.bootstrap_worker_token is not None and self.bootstrap_worker_token == self.bootstrap_token:
            raise ValueError("bootstrap_worker_token must not be bootstrap_token: workers are no admins")
        return self

    @field_validator("bootstrap_token", "bootstrap_worker_token")
    @classmethod
    def _is_a_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        key = fit_for_a_header(value.get_secret_value())
        if not key.startswith("gk-"):
            raise ValueError("a token starts with gk-")
        return SecretStr(key)


def comma_list(value: object) -> object:
    """Read the environment's form of a list; any other value is left as it is."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _num_parallel() -> int:
    """Read Ollama's own setting, for a worker that is started in the same environment."""
    given = os.environ.get("OLLAMA_NUM_PARALLEL", "")
    return max(1, int(given)) if given.isascii() and given.isdigit() else 1


class WorkerSettings(
    TimingSettings, BrokerSettings, ServerAddressSettings, PoolNameSettings, SlotSettings, MetricsSettings
):
    """A GPU worker: broker, API and key are all it needs; timing and slots of its pool come with its registration."""

    worker_name: str | None = Field(
        None, description="Name of the worker. Default: the name of a single-worker token, else <machine_id>-<n>."
    )
    machine_id: str = Field("auto", description="Name of the machine; auto = its host name (C-06).")
    state_dir: Path = Field(
        default_factory=places.state_dir,
        description="The worker's identity and its spool of reports; one process at a time.",
        json_schema_extra={"default": "worker/ in the default data_dir"},
    )
    runtime: str = Field(
        "auto", description="auto, ollama, vllm, local, fake, or package.module:Class of your own executor."
    )
    runtime_url: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="URLs of the runtime's replicas (with or without /v1); a comma list in the environment."
    )
    runtime_api_key: SecretStr | None = Field(None, description="Key sent to the runtime.")
    local_model: Path | None = Field(
        None,
        description="A GGUF file for the local runtime; its name without `.gguf` is the model's.",
        json_schema_extra={"default": "the small model that `gpuyard model fetch` gets"},
    )
    local_embeddings: bool = Field(default=False, description="Let the local model answer `/v1/embeddings` too.")
    max_concurrent_prompts: Literal["auto"] | PositiveInt = Field(
        "auto", description="Prompts in flight at the runtimes; auto starts at 8 and follows what they bear."
    )
    row_timeout_seconds: Seconds = Field(300, description="Longest time of one row at the runtime.")
    runtime_down_seconds: Seconds = Field(
        300, description="A runtime that fails for every row keeps its rows so long; then they are given back."
    )
    pull_models: bool = Field(default=False, description="Let Ollama pull a model that a batch asks for.")
    vram_gb: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None,
        description="GPU memory in GB (10^9 bytes) that a model may use; one that needs more than this and the host's "
        "memory together is not pulled.",
        json_schema_extra={"default": "what NVIDIA's driver tells"},
    )
    embedding_chunk_size: PositiveInt | None = Field(
        None,
        description="Embedding rows that may share a request, where the runtime allows it.",
        json_schema_extra={"default": "64 on Ollama, else 1"},
    )
    ollama_num_parallel: PositiveInt = Field(
        default_factory=_num_parallel,
        description="Rows that Ollama works on at once; its own OLLAMA_NUM_PARALLEL.",
        json_schema_extra={"default": "OLLAMA_NUM_PARALLEL of the worker's environment, else 1"},
    )
    ollama_truncate: bool = Field(
        default=False,
        description="Let Ollama cut in silence what is longer than its context, instead of failing the row.",
    )
    model_load_seconds: Seconds = Field(
        600, description="Longest time a row waits for Ollama to load its model; it is not part of row_timeout_seconds."
    )
    keep_alive_seconds: float = Field(
        -1,
        description="Leave after this long without work; 0 = when there is none, -1 = stay (launched workers: 300).",
    )
    wait_max_seconds: Seconds = Field(30, description="Longest wait of one long poll.")
    retry_min_seconds: Seconds = Field(1, description="First wait after a failed call; doubles.")
    retry_max_seconds: Seconds = Field(30, description="Longest wait after a failed call.")

    @field_validator("runtime_url", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        return comma_list(value)

    @field_validator("state_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @model_validator(mode="after")
    def _back_off(self) -> Self:
        if self.retry_min_seconds > self.retry_max_seconds:
            raise ValueError("retry_min_seconds must not exceed retry_max_seconds")
        return self


class CelerySettings(SweepSettings, BrokerSettings, SlotSettings):
    """What Celery itself needs in the processes that never open the database: GPU worker, beat, Flower."""


class ClientSettings(ServerAddressSettings):
    """The CLI."""


Role = Literal["server", "worker", "client"]
ROLES: dict[Role, type[Common]] = {"server": ServerSettings, "worker": WorkerSettings, "client": ClientSettings}
SettingsT = TypeVar("SettingsT", bound=Common)


def known_names() -> frozenset[str]:
    """Every setting of every role: one file and one environment serve all processes of a machine."""
    return frozenset(name for role in ROLES.values() for name in role.model_fields)


def load(role: type[SettingsT], *, cli: Mapping[str, Any] | None = None, config: Path | None = None) -> SettingsT:
    """Read the settings of one role, once, at an entry point.

    `cli` holds options by field name; None means not given. `config` is `--config`.
    Raises SettingsError: an unknown key (with the nearest known one), a bad value, an unreadable file.
    """
    settings, _ = load_with_origins(role, cli=cli, config=config)
    for line in settings.warnings():
        logging.getLogger("gpuyard.config").warning(line)
    return settings


def load_with_origins(
    role: type[SettingsT], *, cli: Mapping[str, Any] | None = None, config: Path | None = None
) -> tuple[SettingsT, dict[str, str]]:
    """As `load`, and where each value came from: `command line`, `environment`, a file's path or `default`."""
    found = layers(role, cli=cli or {}, config=config, known=known_names())
    values: dict[str, Any] = {}
    origins = dict.fromkeys(role.model_fields, "default")
    for layer in reversed(found):
        for name, value in layer.values.items():
            values[name] = value
            origins[name] = layer.origin
    try:
        return role(**values), origins
    except ValidationError as error:
        raise SettingsError(_explain(error, found, role)) from None


def _explain(error: ValidationError, found: tuple[Layer, ...], role: type[Common]) -> str:
    """One line a problem, naming the setting and the place of its value, never the value (it may be a secret)."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        if problem["type"] == "default_factory_not_called":  # follows from another problem, and nobody can mend it
            continue
        path = ".".join(str(part) for part in problem["loc"])
        name = str(problem["loc"][0]) if problem["loc"] else ""
        origin = next((f" ({layer.origin})" for layer in found if name in layer.values), "")
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "unknown key" + nearest(str(problem["loc"][-1]), PoolSettings.model_fields)
        lines.append(f"{path}{origin}: {message}" if path else message)
    return f"settings of the {role.__name__.removesuffix('Settings').lower()}: " + "; ".join(dict.fromkeys(lines))
