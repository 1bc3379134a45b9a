"""The groups of settings that several processes share, one frozen class each. Every description is in the reference."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeInt, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.domain.timing import Timing
from config import broker_url, places
from config.keys import fit_for_a_header
from config.proxies import proxy_for
from config.queues import check_pool_name
from config.trust import check_authorities

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Common(BaseSettings):
    """What every process reads."""

    model_config = SettingsConfigDict(
        env_prefix="GPUYARD_", env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Lowest level that is logged.")
    log_json: bool = Field(
        default=False, description="Log one JSON object a line instead of text (the default off a terminal is text)."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings' signature - the parent's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings' signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings' signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings' signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Built from arguments alone: `config.settings.load` reads the layers and knows where a value is from."""
        return (init_settings,)

    def warnings(self) -> tuple[str, ...]:
        """What is allowed and yet worth a line in the log at start."""
        return ()


class TimingSettings(Common):
    """The ladder of silence (DESIGN 7). A pool may have its own; these are the defaults."""

    renew_seconds: Seconds = Field(10, description="A worker sends a heartbeat this often (±20 %).")
    grace_seconds: Seconds = Field(
        50,
        description="After this silence a worker is unreachable: its slots count zero. At least 2 * renew_seconds + "
        "sweep_seconds.",
    )
    toleration_seconds: Seconds = Field(
        300, description="After this silence a worker's leases expire and its jobs go back to the queue."
    )
    drain_seconds: Annotated[float, Field(ge=0)] = Field(
        60, description="How long rows and runs in flight may go on after a stop was asked for."
    )
    kill_after_seconds: Seconds = Field(10, description="From SIGTERM to SIGKILL of a worker's children.")
    segment_seconds: Seconds = Field(2, description="A worker hands finished rows in this often.")

    @model_validator(mode="after")
    def _ladder(self) -> Self:
        Timing(
            renew_seconds=self.renew_seconds,
            grace_seconds=self.grace_seconds,
            toleration_seconds=self.toleration_seconds,
            kill_after_seconds=self.kill_after_seconds,
            sweep_seconds=getattr(self, "sweep_seconds", 0.0),  # a worker runs no sweeps
        )
        return self


class SweepSettings(TimingSettings):
    """How often beat rings the sweeps."""

    sweep_seconds: Seconds = Field(5, description="Beat runs each sweep this often; below half of grace_seconds.")
    retention_sweep_seconds: Seconds = Field(300, description="Beat runs the retention sweep this often.")

    @model_validator(mode="after")
    def _often_enough(self) -> Self:
        if not self.sweep_seconds < self.grace_seconds / 2:
            raise ValueError(
                "sweep_seconds < grace_seconds / 2 must hold, and "
                f"{self.sweep_seconds:g} < {self.grace_seconds / 2:g} does not"
            )
        return self


class BrokerSettings(Common):
    """The doorbell."""

    broker_url: SecretStr | None = Field(
        None, description="redis://, rediss:// (with certificate checks), redis+socket:// or sentinel:// URL."
    )

    @field_validator("broker_url")
    @classmethod
    def _allowed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        url = broker_url.for_celery(value.get_secret_value())
        if missing := broker_url.missing_file(url):
            raise ValueError(f"there is no file {missing} that this user can read")
        return SecretStr(url)

    def warnings(self) -> tuple[str, ...]:
        """Adds: a broker on another host without TLS."""
        if self.broker_url is None or not broker_url.is_plain_to_another_host(self.broker_url.get_secret_value()):
            return super().warnings()
        return (*super().warnings(), "broker_url is plain redis:// to another host: anybody between can read and ring")


class MetricsSettings(Common):
    """Where a process that is no API shows its figures."""

    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None,
        description="Port on which a GPU worker or a control worker answers Prometheus; 0 = a free one, named in the "
        "log. Not set: none. The API has `/metrics`.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        description="Address of that port. Whoever reaches it reads the figures: it asks for no key.",
    )


class PoolNameSettings(Common):
    """The one pool that a name was not given for."""

    pool: str = Field(
        "gpu", description="The pool a worker serves; on the server the default pool of a stock SDK call."
    )

    @field_validator("pool")
    @classmethod
    def _named_well(cls, value: str) -> str:
        return check_pool_name(value)


class SlotSettings(Common):
    """How many jobs of a class a worker takes at once (a pool may have its own; 0 = none)."""

    slots_batches: NonNegativeInt = Field(1, description="Batches a worker works on at once.")
    # These three have no effect until their kinds of work are built; a file that names them is right already.
    slots_runs: NonNegativeInt = Field(
        4, description="Runs a worker executes at once. Not used yet: there are no runs."
    )
    slots_agents: NonNegativeInt = Field(
        0, description="Agent sessions a worker holds at once. Not used yet: there are none."
    )
    slots_evaluations: NonNegativeInt = Field(
        0, description="Evaluations a worker executes at once. Not used yet: there are none."
    )
    max_invocations: NonNegativeInt = Field(
        100, description="Bound of a worker's jobs over all slot classes; 0 = no bound (C-09)."
    )

    @property
    def invocation_bound(self) -> int | None:
        """`max_invocations` as the code uses it: None = no bound (R-10)."""
        return self.max_invocations or None


class ServerAddressSettings(Common):
    """How a worker or the CLI reaches the control plane."""

    server_url: str | None = Field(None, description="URL of the API, without /v1.")
    api_key: SecretStr | None = Field(None, description="API token (gk-…) sent to the API.")

    @field_validator("server_url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is None or not (url := value.strip()):
            return None
        if not url.startswith(("http://", "https://")):
            raise ValueError("a server URL starts with http:// or https://")
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or any(char.isspace() or not char.isprintable() for char in url):
            raise ValueError("a server URL names a host, and has neither spaces nor line ends in it")
        if parts.scheme == "https":
            check_authorities()
        proxy_for(url)
        return url.rstrip("/").removesuffix("/v1")

    @field_validator("api_key")
    @classmethod
    def _fits(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else SecretStr(fit_for_a_header(value.get_secret_value()))

    def warnings(self) -> tuple[str, ...]:
        """Adds: a key that goes to another host without TLS."""
        if self.server_url is None or not broker_url.is_plain_to_another_host(self.server_url):
            return super().warnings()
        return (*super().warnings(), "server_url is plain http:// to another host: anybody between can read the key")


class DataDirSettings(Common):
    """Where the control side keeps what is its own."""

    data_dir: Path = Field(
        default_factory=places.data_dir,
        description="Database, blobs, logs and broker of one installation; API and control worker share it.",
        json_schema_extra={"default": "/var/lib/gpuyard as root, else ~/.local/share/gpuyard"},
    )

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if "?" in str(value):
            # A database URL ends its path there and has no escape for it: the database would lie somewhere else.
            raise ValueError("the path of a data folder cannot hold a question mark")
        return value.expanduser().absolute()


def sqlite_in(data: dict[str, Any]) -> SecretStr:
    """The database when none is named: one SQLite file in the data folder."""
    return SecretStr(f"sqlite:///{data['data_dir']}/gpuyard.db")
