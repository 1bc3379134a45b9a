"""`gpuyard webhook`: who is told of the ends of batches, with what secret, and how it went (OPENAI_CONTRACT 1.11)."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from app.cli.connection import server
from app.cli.errors import CliError, the_one
from app.cli.figures import moment
from app.cli.printing import Json, Limit, print_fields, print_json, print_table, say
from app.client.public import PublicApi, path_to

PAGE = 100
TAKEN = range(200, 300)
UNDELIVERED = frozenset({"given_up", "dropped", "waiting"})
app = typer.Typer(
    no_args_is_help=True, help="Webhooks: create, list, show, set, test, rotate, deliveries, redeliver, delete."
)


class Event(StrEnum):
    """What an endpoint may be told."""

    COMPLETED = "batch.completed"
    FAILED = "batch.failed"
    EXPIRED = "batch.expired"
    CANCELLED = "batch.cancelled"


Which = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Id or name of an endpoint.")]
Events = Annotated[list[Event] | None, typer.Option("--event", help="May be given several times. Default: all four.")]


@app.command()
def create(
    url: Annotated[str, typer.Argument(help="Where to send: an https URL.")],
    name: Annotated[str, typer.Option(help="For people to tell endpoints apart.")] = "webhook",
    event: Events = None,
    as_json: Json = False,
) -> None:
    """Make an endpoint and print its signing secret. It is shown this once."""
    body = {"name": name, "url": url, "event_types": [str(each) for each in event or Event]}
    with server() as api:
        made = api.post("/v1/webhook_endpoints", body)
    _print_secret(made, as_json=as_json)


@app.command("list")
def list_endpoints(as_json: Json = False) -> None:
    """List endpoints, newest first."""
    with server() as api:
        found = endpoints(api)
    if as_json:
        print_json(found)
        return
    print_table(
        ("endpoint", "name", "events", "state", "url"),
        ((each["id"], each["name"], _events(each), _state(each), each["url"]) for each in found),
        nothing="no webhooks: `gpuyard webhook create URL` makes one",
        sentences=True,
    )


@app.command()
def show(endpoint: Which, as_json: Json = False) -> None:
    """Show an endpoint: what it is told, and how that went last."""
    with server() as api:
        found = find(api, endpoint)
    _show(found, as_json=as_json)


@app.command("set")
def set_endpoint(
    endpoint: Which,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    url: Annotated[str | None, typer.Option(help="Another place to send to.")] = None,
    event: Annotated[list[Event] | None, typer.Option("--event", help="All that it is told from now on.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Tell it again, or tell it nothing for now.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Change an endpoint; what is not named stays as it is."""
    events = [str(each) for each in event] if event else None
    body = {"name": name, "url": url, "event_types": events, "enabled": enabled}
    body = {key: value for key, value in body.items() if value is not None}
    if not body:
        raise typer.BadParameter("name something to change, such as --enable")
    with server() as api:
        changed = api.post(path_to("v1", "webhook_endpoints", find(api, endpoint)["id"]), body)
    _show(changed, as_json=as_json)


@app.command("test")
def send_sample(
    endpoint: Which,
    event: Annotated[Event, typer.Option(help="What to send a sample of.")] = Event.COMPLETED,
    as_json: Json = False,
) -> None:
    """Send a sample event now. Exit code: 0 when it was taken (2xx), else 1."""
    with server() as api:
        path = path_to("v1", "webhook_endpoints", find(api, endpoint)["id"], "test")
        result = api.post(path, {"event_type": str(event)})
    if as_json:
        print_json(result)
    else:
        typer.echo(f"{result['event_type']} was answered with HTTP {result['status_code']}")
    if result["status_code"] not in TAKEN:
        raise CliError(f"HTTP {result['status_code']} says that it was not taken")


@app.command()
def rotate(
    endpoint: Which,
    keep_old: Annotated[bool, typer.Option("--keep-old", help="Sign with the old secret, too, for 24 hours.")] = False,
    as_json: Json = False,
) -> None:
    """Give an endpoint another signing secret and print it. It is shown this once."""
    with server() as api:
        path = path_to("v1", "webhook_endpoints", find(api, endpoint)["id"], "rotate_secret")
        rotated = api.post(path, {"keep_old_secret_active_for_24_hours": keep_old})
    _print_secret(rotated, as_json=as_json)


@app.command()
def deliveries(
    endpoint: Which,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List what an endpoint was told or is to be told, newest first, with the last error of each."""
    with server() as api:
        found = list(islice(_deliveries(api, find(api, endpoint), page=min(limit, PAGE)), limit))
    _show_deliveries(found, nothing="nothing was sent yet", as_json=as_json)


@app.command()
def redeliver(
    endpoint: Which,
    batch: Annotated[list[str] | None, typer.Argument(metavar="[BATCH]...", help="Ids of batches.")] = None,
    undelivered: Annotated[
        bool, typer.Option("--undelivered", help="All that is given up, dropped or waits for its next try.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell an endpoint of the ends of batches again, now, or for the first time what it missed while disabled."""
    if bool(batch) is undelivered:
        raise typer.BadParameter("name batches, or say --undelivered")
    with server() as api:
        found = find(api, endpoint)
        wanted = batch or [each["batch_id"] for each in _deliveries(api, found) if each["state"] in UNDELIVERED]
        path = path_to("v1", "webhook_endpoints", found["id"], "redeliver")
        told = [api.post(path, {"batch_id": each}) for each in wanted]
    _show_deliveries(told, nothing="everything was delivered", as_json=as_json)


@app.command()
def delete(endpoint: Which, as_json: Json = False) -> None:
    """Delete an endpoint: nothing is sent to it any more, what waits included."""
    with server() as api:
        deleted = api.delete(path_to("v1", "webhook_endpoints", find(api, endpoint)["id"]))
    if as_json:
        print_json(deleted)
        return
    typer.echo(f"{deleted['id']} is deleted")


def endpoints(api: PublicApi) -> list[dict[str, Any]]:
    """Read them all: an org has few."""
    return list(api.each("/v1/webhook_endpoints", limit=PAGE))


def find(api: PublicApi, given: str) -> Mapping[str, Any]:
    """Find the one endpoint that is meant. Raises CliError when none or several are."""
    return the_one([each for each in endpoints(api) if given in {each["id"], each["name"]}], given, "webhook")


def _deliveries(api: PublicApi, endpoint: Mapping[str, Any], *, page: int = PAGE) -> Iterator[dict[str, Any]]:
    return api.each(path_to("v1", "webhook_endpoints", endpoint["id"], "deliveries"), limit=page)


def _show_deliveries(found: Sequence[Mapping[str, Any]], *, nothing: str, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ("batch", "event", "state", "tries>", "next try", "last error"),
        (
            (each["batch_id"], each["type"], each["state"], each["tries"], _next(each), each["last_error"] or "")
            for each in found
        ),
        nothing=nothing,
        sentences=True,
    )


def _print_secret(endpoint: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(endpoint)
        return
    say(f"{endpoint['id']} for {endpoint['url']}; its signing secret, shown this once:")
    typer.echo(endpoint["signing_secret"])


def _show(endpoint: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(endpoint)
        return
    health = endpoint["gpuyard"]
    print_fields(
        {
            "webhook": endpoint["id"],
            "name": endpoint["name"],
            "url": endpoint["url"],
            "events": _events(endpoint),
            "secret": endpoint["signing_secret_hint"],
            "state": _state(endpoint),
            "last success": moment(health["last_success_at"]),
            "last failure": moment(health["last_failure_at"]),
            "last error": health["last_error"],
        }
    )


def _events(endpoint: Mapping[str, Any]) -> str:
    return ",".join(str(each).removeprefix("batch.") for each in endpoint["event_types"])


def _state(endpoint: Mapping[str, Any]) -> str:
    health = endpoint["gpuyard"]
    if not health["enabled"]:
        return f"disabled: {health['disabled_reason']}"
    failed, succeeded = health["last_failure_at"], health["last_success_at"]
    return "failing" if failed is not None and (succeeded is None or succeeded < failed) else "enabled"


def _next(delivery: Mapping[str, Any]) -> str | None:
    return moment(delivery["next_try_at"])
