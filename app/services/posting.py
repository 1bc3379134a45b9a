"""Sending a webhook: the only place of the control side that calls a server somebody named.

The name is resolved once, the addresses are judged, and the connection goes to one of those: a name that leads
elsewhere a moment later leads nowhere. No proxy, no redirect, no byte of the answer's body, one bound over all of it.

What is said of a place that is not on the public Internet is the same whatever is there, or not there: whoever names
hosts must not learn which names, addresses and ports the operator's network has. The operator's org is told all.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import ip_address
from ssl import SSLContext

import httpx

from app.domain.errors import TooManyAtOnce
from app.domain.webhooks import Address, Network, is_allowed, may_reach, parse_address
from app.services.in_flight import InFlight

MAX_URL = 2048
PORTS = 2**16
ADDRESSES = 2
"""Addresses of one name that are tried: the second is for a machine without IPv6."""
SHOWN = 300
RESOLVERS = 24
RESOLVERS_OF_ORG = 8
"""A name whose servers do not answer holds its thread longer than any try lasts."""
_REDIRECTS = range(300, 400)
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a try. `status` None: nothing answered. `error` None: it was taken (2xx).

    `detail`: what the operator's org may read in place of `error`.
    """

    status: int | None
    error: str | None
    detail: str | None = None

    def told_to(self, *, operator: bool) -> "Answer":
        """Return the answer as an org may read it."""
        return Answer(self.status, self.detail if operator and self.detail else self.error)


class _Failed(Exception):
    """There is no answer. Says what the org may know of it, and the operator."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(error)
        self.answer = Answer(None, error, detail)


def check_url(url: str, allowed: Sequence[Network]) -> str:
    """Give a URL in its one spelling. Raises ValueError, saying why webhooks cannot be sent there."""
    try:
        parsed = httpx.URL(url)
        host = parsed.host
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ValueError(f"it is no URL: {error}") from None
    if parsed.scheme != "https" and not (parsed.scheme == "http" and allowed):
        raise ValueError(
            "it has to begin with https://. An operator allows plain http:// to networks of its own by webhook_networks"
        )
    if not host:
        raise ValueError("it names no host")
    if not _can_be_looked_up(parsed):
        raise ValueError("its host is no name, or its port none that there is")
    if parsed.userinfo or parsed.fragment:
        raise ValueError("it must hold no user, password or fragment")
    if len(str(parsed)) > MAX_URL:
        raise ValueError(f"it has more than {MAX_URL} characters")
    address = _literal(host)
    if address is not None and not may_reach(address, allowed):
        raise ValueError(_refusal(host))
    return str(parsed)


@dataclass(frozen=True, slots=True)
class Call:
    """A webhook as it is sent. `org_id` bounds how many names of one org are looked up at a time."""

    org_id: str
    url: str
    body: bytes
    headers: Mapping[str, str]


async def post(
    call: Call, *, allowed: Sequence[Network], timeout_seconds: float, resolve: Resolve | None = None
) -> Answer:
    """Send a webhook, and return what came of it within `timeout_seconds`, resolving included. Raises nothing."""
    url = httpx.URL(call.url)
    places: list[Address] = []
    try:
        async with asyncio.timeout(timeout_seconds):
            places += await _places(url, allowed, resolve or partial(_resolve, call.org_id))
            return await _post(url, call, places)
    except _Failed as error:
        return error.answer
    except TimeoutError:
        return _unanswered(url, places, f"no answer within {timeout_seconds:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        return _unanswered(url, places, f"{type(error).__name__}: {error}"[:SHOWN])


def _unanswered(url: httpx.URL, places: Sequence[Address], detail: str) -> Answer:
    """Say why there is no answer, unless the place is one of the operator's network."""
    inside = any(not may_reach(place, ()) for place in places)
    return Answer(None, f"no HTTP answer from {url.host}" if inside else detail, detail)


async def _post(url: httpx.URL, call: Call, places: Sequence[Address]) -> Answer:
    secure = url.scheme == "https"
    host = url.raw_host.decode("ascii")
    host_and_port = url.netloc.decode("ascii")
    sent = {"content-type": "application/json", "user-agent": "gpuyard", **call.headers, "host": host_and_port}
    trust = await asyncio.to_thread(_trust) if secure else False
    async with httpx.AsyncClient(verify=trust, trust_env=False, timeout=None) as client:  # noqa: S113 - bounded as a whole
        for place in places:
            request = client.build_request(
                "POST",
                url.copy_with(host=str(place)),
                content=call.body,
                headers=sent,
                extensions={"sni_hostname": host} if secure else {},
            )
            try:
                response = await client.send(request, stream=True)
            except httpx.ConnectError:
                if place is places[-1]:
                    raise
                continue
            await response.aclose()
            return _judged(response)
    raise AssertionError


async def _places(url: httpx.URL, allowed: Sequence[Network], resolve: Resolve) -> list[Address]:
    """Return the addresses to connect to. Raises _Failed when there is none that may be reached."""
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = [parse_address(text) for text in await resolve(url.raw_host.decode("ascii"), port)]
    except socket.gaierror as error:
        # What cannot be resolved and what is inside sound the same: names are told apart by it, too.
        raise _Failed(_refusal(url.host), f"{url.host} cannot be resolved: {error.strerror or error}") from None
    good = [address for address in found if may_reach(address, allowed)]
    if url.scheme != "https":
        good = [address for address in good if is_allowed(address, allowed)]
    if not good:
        raise _Failed(_refusal(url.host), _why(url.host, found))
    return good[:ADDRESSES]


async def _resolve(org_id: str, host: str, port: int) -> Sequence[str]:
    try:
        _LOOKUPS.begin(org_id)
    except TooManyAtOnce as error:
        raise _Failed(str(error), str(error)) from None
    lookup = _resolvers().submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    lookup.add_done_callback(lambda _: _LOOKUPS.end(org_id))
    found = await asyncio.wrap_future(lookup)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _judged(response: httpx.Response) -> Answer:
    if response.is_success:
        return Answer(response.status_code, None)
    note = ", and redirects are not followed" if response.status_code in _REDIRECTS else ""
    return Answer(response.status_code, f"it answered HTTP {response.status_code}{note}")


def _refusal(host: str) -> str:
    return (
        f"{host} has no address that webhooks may be sent to: one on the public Internet, by https. An operator allows "
        "other networks by webhook_networks"
    )


def _why(host: str, found: Sequence[Address]) -> str:
    where = ", ".join(str(address) for address in found[:ADDRESSES])
    return f"{host} is at {where or 'no address'}, which is not on the public Internet over https"


def _can_be_looked_up(url: httpx.URL) -> bool:
    """Tell whether a resolver would take host and port: what it does not take now it never will."""
    try:
        url.raw_host.decode("ascii").encode("idna")
    except UnicodeError:  # a label that is empty, or too long
        return False
    return b"%" not in url.raw_host and (url.port is None or 0 < url.port < PORTS)


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


_LOOKUPS = InFlight("lookups of names", per_org=RESOLVERS_OF_ORG, in_all=RESOLVERS)


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Threads of their own: those of a loop are waited for at its end, and a resolver may hang."""
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="webhook-resolver")


@cache
def _trust() -> SSLContext:
    """The certificates of this machine, or of SSL_CERT_FILE. Read once: it takes 0.2 s."""
    return httpx.create_ssl_context()
