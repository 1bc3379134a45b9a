"""`gpuyard token`, `gpuyard org`: keys are shown once, and stop working at the next call after a revoke (TK-01)."""

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from app.cli.connection import server
from app.cli.errors import the_one
from app.cli.figures import duration
from app.cli.printing import Json, print_json, print_table, say
from app.client.public import PublicApi, path_to

app = typer.Typer(no_args_is_help=True, help="API keys: create, list, revoke.")
orgs = typer.Typer(no_args_is_help=True, help="Orgs: create, list. The operator's admins only.")


class Scope(StrEnum):
    """What a key may do."""

    READ = "read"
    SUBMIT = "submit"
    WORKER = "worker"
    METRICS = "metrics"
    ADMIN = "admin"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is, for people to tell keys apart.")],
    scope: Annotated[list[Scope] | None, typer.Option(help="May be given several times. Default: submit.")] = None,
    single_worker: Annotated[bool, typer.Option("--single-worker", help="Its name is its worker's, too.")] = False,
    org: Annotated[str | None, typer.Option(help="Name or id of another org; the operator's admins only.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once; the server keeps only its hash."""
    scopes = scope or [Scope.WORKER if single_worker else Scope.SUBMIT]
    body = {"name": name, "scopes": [str(each) for each in scopes], "single_worker": single_worker, "org": org}
    with server() as api:
        token = api.post("/v1/tokens", {key: value for key, value in body.items() if value is not None})
    if as_json:
        print_json(token)
        return
    say(f"{token['id']} for {token['name']} ({', '.join(token['scopes'])}), shown this once:")
    typer.echo(token["secret"])


@app.command("list")
def list_tokens(
    every: Annotated[bool, typer.Option("--all", help="Revoked ones, too.")] = False, as_json: Json = False
) -> None:
    """List the org's keys, without what opens anything."""
    with server() as api:
        found = [token for token in api.each("/v1/tokens") if every or not token["revoked_at"]]
    if as_json:
        print_json(found)
        return
    now = time.time()
    print_table(
        ("token", "begins", "scopes", "used", "name"),
        (
            (token["id"], token["prefix"], ",".join(token["scopes"]), _used(token, now), token["name"])
            for token in found
        ),
        nothing="no tokens",
    )


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, its name, or how the key begins.")],
    as_json: Json = False,
) -> None:
    """Revoke a key: the next call with it is refused."""
    with server() as api:
        revoked = api.delete(path_to("v1", "tokens", token_id(api, token)))
    if as_json:
        print_json(revoked)
        return
    typer.echo(f"{revoked['id']} ({revoked['name']}) is revoked")


def token_id(api: PublicApi, given: str) -> str:
    """Find the one token that is meant. Raises CliError when none or several are."""
    found = [token for token in api.each("/v1/tokens") if not token["revoked_at"] or token["id"] == given]
    meant = [token for token in found if given in {token["id"], token["name"], token["prefix"]}]
    # A whole key is what people have in their clipboard; only its beginning is looked at and nothing of it is sent.
    meant = meant or [token for token in found if given.startswith(token["prefix"])]
    return str(the_one(meant, given, "token")["id"])


@orgs.command("create")
def create_org(name: Annotated[str, typer.Argument(help="Name of the org.")], as_json: Json = False) -> None:
    """Make an org. Its first key: `gpuyard token create NAME --org ORG --scope admin`."""
    with server() as api:
        org = api.post("/v1/orgs", {"name": name})
    if as_json:
        print_json(org)
        return
    typer.echo(org["id"])
    say(f"its first key: gpuyard token create NAME --org {org['id']} --scope admin")


@orgs.command("list")
def list_orgs(as_json: Json = False) -> None:
    """List all orgs."""
    with server() as api:
        found = api.get("/v1/orgs")["data"]
    if as_json:
        print_json(found)
        return
    rows = ((org["id"], "yes" if org["operator"] else None, org["name"]) for org in found)
    print_table(("org", "operator", "name"), rows, nothing="no orgs")


def _used(token: Mapping[str, Any], now: float) -> str:
    if token["revoked_at"]:
        return "revoked"
    return f"{duration(now - token['last_used_at'])} ago" if token["last_used_at"] else "never"
