"""The server a command talks to: found by the settings, and its refusals told as one line that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.cli.errors import CliError, ExitCode
from app.cli.printing import clean, say
from app.client.errors import PROXY_ALONE, REDIRECTS, ControlPlaneError, TryLater
from app.client.public import BUSY_SECONDS, PublicApi
from app.local.control_plane import distrust, not_trusted
from config.logging import configure
from config.proxies import proxy_for
from config.settings import ClientSettings, load_with_origins
from config.sources import LOCAL

_UNAUTHORIZED = 401


@dataclass(frozen=True)
class Address:
    """URL (without /v1) and key of a server, where the key was found, and the proxy on the way there."""

    url: str
    key: str
    key_from: str
    proxy: str | None = None


def find_server() -> Address:
    """Read the settings. Raises SettingsError, and CliError when they name no server or no key."""
    settings, origins = load_with_origins(ClientSettings)
    # The client's own log lines are for workers; here a failed call becomes the command's one line.
    configure("cli", level="DEBUG" if settings.log_level == "DEBUG" else "CRITICAL")
    if settings.server_url is None:
        raise CliError("no server: set GPUYARD_SERVER_URL and GPUYARD_API_KEY, or start one here with `gpuyard up`")
    if settings.api_key is None:
        raise CliError(
            f"no key for {settings.server_url}: set GPUYARD_API_KEY (an admin makes one with `gpuyard token create`)"
        )
    is_here = origins["server_url"].startswith(LOCAL)
    return Address(
        url=settings.server_url,
        key=settings.api_key.get_secret_value(),
        key_from=origins["api_key"],
        proxy=None if is_here else proxy_for(settings.server_url),
    )


@contextmanager
def server() -> Iterator[PublicApi]:
    """Open the API for a command; what it refuses leaves the block as CliError."""
    address = find_server()
    with PublicApi(address.url, address.key, proxy=address.proxy, busy=_say_busy) as api:
        try:
            yield api
        except ControlPlaneError as error:
            # Neither a certificate nor a proxy's ways are others in a while.
            stays = error.status in REDIRECTS or (error.status is None and distrust(error.message))
            will_pass = isinstance(error, TryLater) and not stays
            exit_code = ExitCode.AWAY if will_pass else ExitCode.ERROR
            raise CliError(explain(error, address), exit_code=exit_code) from error


def _say_busy(message: str) -> None:
    say(f"{message} (trying for {BUSY_SECONDS:g} s)")


def no_api_behind(url: str, status: int | None) -> str:
    """Say who answered with a status of PROXY_ALONE."""
    return f"a proxy answers at {url}, and no API behind it (HTTP {status})"


def explain(error: ControlPlaneError, address: Address) -> str:
    """Say what a call ended with, and what to do about it."""
    if error.status is None and (why := distrust(error.message)):
        return not_trusted(address.url, why)
    if error.status is None:
        return (
            f"{address.url} does not answer ({error.message.removeprefix('no answer: ')}): is it running there? "
            "`gpuyard up` starts one on this machine, `gpuyard doctor` looks for what is wrong"
        )
    if error.status in PROXY_ALONE and error.code is None:
        return f"{no_api_behind(address.url, error.status)}: does the API run, and where the proxy looks for it?"
    if error.status == _UNAUTHORIZED:
        return f"{address.url} refuses the key from {address.key_from}: {error.message}"
    message = clean(error.message)
    return f"{address.url}: {message}" if error.code is None else f"{message} ({error.code})"
