"""`gpuyard broker acl`: the account of a pool's workers, or of the control plane, at the broker (DESIGN 11)."""

import hashlib
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import urlsplit

import typer

from app.cli.errors import CliError
from app.cli.printing import Json, print_json, say
from config.broker_acl import line_of, rules_of, user_of
from config.broker_url import for_celery, for_redis, masked

if TYPE_CHECKING:
    from redis import Redis

app = typer.Typer(no_args_is_help=True, help="The broker: accounts for pools.")
ADMIN_SECONDS = 5.0


@app.callback()
def broker() -> None:
    """Make `acl` a command of a group, also while it is the only one."""


@dataclass(frozen=True, slots=True)
class Account:
    """What was decided about an account's password. `secret` is None for one that stays as it is, unknown to us."""

    hashes: tuple[str, ...]
    secret: str | None = None

    @classmethod
    def with_password(cls, secret: str) -> "Account":
        """One password and no other."""
        return cls((hashlib.sha256(secret.encode()).hexdigest(),), secret)


@app.command()
def acl(
    pool: Annotated[str, typer.Argument(help="A pool, or `control` for the control plane.")],
    apply: Annotated[bool, typer.Option("--apply", help="Set it at the broker, too.")] = False,
    admin_url: Annotated[
        str | None,
        typer.Option(envvar="GPUYARD_BROKER_ADMIN_URL", help="The broker, with an account that may set accounts."),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="Take the password from a file (`-`: standard input) instead of a new one.")
    ] = None,
    new_password: Annotated[bool, typer.Option("--new-password", help="Replace the one that an account has.")] = False,
    db: Annotated[int, typer.Option(min=0, help="Number of the broker's database.")] = 0,
    as_json: Json = False,
) -> None:
    """Print the line that gives a pool's workers their account at the broker: their own bells, and nothing else.

    The line is for the broker's ACL file or its configuration, and holds the password's hash alone. The password is
    new, and shown this once on standard error; with `--apply` an account that is there keeps its own.
    """
    try:
        rules = rules_of(pool, db=db)
    except ValueError as error:
        raise CliError(str(error)) from None
    if apply:
        account = _apply(admin_url, pool, rules, _given(password_file), renew=new_password)
    else:
        account = Account.with_password(_given(password_file) or secrets.token_urlsafe(32))
    line = line_of(pool, account.hashes, db=db)
    # Whoever gave the password has it already.
    secret = None if password_file else account.secret
    if as_json:
        print_json({"user": user_of(pool), "password": secret, "line": line, "applied": apply})
        return
    if secret:
        say(f"password of {user_of(pool)}, shown this once: {secret}")
    typer.echo(line)


def _given(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        text = content.decode()
    except OSError as error:
        raise CliError(f"no password: {error}") from None
    except UnicodeDecodeError:
        raise CliError(f"no password: {file} is no text in UTF-8") from None
    if not (found := text.strip()):
        raise CliError(f"no password: {file} is empty")
    return found


def _apply(url: str | None, pool: str, rules: tuple[str, ...], given: str | None, *, renew: bool) -> Account:
    if url is None:
        raise CliError("--apply needs --admin-url, or GPUYARD_BROKER_ADMIN_URL")
    try:
        address = for_redis(for_celery(url))
    except ValueError as error:
        raise CliError(f"the admin URL: {error}") from None
    from redis import Redis  # noqa: PLC0415 - 0.3 s that the other commands need not pay
    from redis.exceptions import RedisError  # noqa: PLC0415 - as above

    name = user_of(pool)
    if urlsplit(url).username == name:
        raise CliError(f"the admin URL logs in as {name} itself: name an account that may set others")
    try:
        with Redis.from_url(address, socket_timeout=ADMIN_SECONDS, socket_connect_timeout=ADMIN_SECONDS) as redis:
            account = _account(redis, name, given, renew=renew)
            # One command, so that no worker meets an account that is half made.
            redis.execute_command("ACL", "SETUSER", name, "reset", *(f"#{each}" for each in account.hashes), *rules)
            _save(redis)
    except (RedisError, OSError, ValueError) as error:
        raise CliError(f"{masked(url)} did not set {name}: {error}") from None
    return account


def _account(redis: "Redis", name: str, given: str | None, *, renew: bool) -> Account:
    if given is None and not renew and (known := redis.acl_getuser(name)):
        passwords = cast("list[str]", known["passwords"])
        if passwords:
            return Account(tuple(each.removeprefix("#") for each in passwords))
    return Account.with_password(given or secrets.token_urlsafe(32))


def _save(redis: "Redis") -> None:
    from redis.exceptions import ResponseError  # noqa: PLC0415 - as above

    try:
        redis.acl_save()
    except ResponseError as error:
        say(f"the broker did not save it, and forgets it when it starts again unless you write the line down: {error}")
