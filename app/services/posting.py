"""Sending a webhook: the only place of the control side that calls a server somebody named.

The name is resolved once, the addresses are judged, and the connection goes to one of those: a name that leads
elsewhere a moment later leads nowhere. No proxy, no redirect, no byte of the answer's body, one bound over all of it.
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

from app.domain.webhooks import Address, Network, is_allowed, may_reach, parse_address

MAX_URL = 2048
PORTS = 2**16
ADDRESSES = 2
"""Addresses of one name that are tried: the second is for a machine without IPv6."""
SHOWN = 300
RESOLVERS = 4
_REDIRECTS = range(300, 400)
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a try. `status` None: nothing answered. `error` None: it was taken (2xx)."""

    status: int | None
    error: str | None


class _Refused(Exception):
    """The place is none that webhooks may be sent to; the message says why."""


def check_url(url: str, allowed: Sequence[Network]) -> str:
    """Give a URL in its one spelling. Raises ValueError, saying why webhooks cannot be sent there."""
    try:
        parsed = httpx.URL(url)
        host = parsed.host
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ValueError(f"it is no URL: {error}") from None
    if parsed.scheme != "https" and not (parsed.scheme == "http" and allowed):
        raise ValueError("it has to begin with https://")
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
        raise ValueError(_why(host, [address]))
    return str(parsed)


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allowed: Sequence[Network],
    timeout_seconds: float,
    resolve: Resolve | None = None,
) -> Answer:
    """Send `body`, and give what came of it within `timeout_seconds`, the resolving included. Raises nothing."""
    return asyncio.run(_bounded(url, body, headers, allowed, timeout_seconds, resolve or _resolve))


async def _bounded(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    allowed: Sequence[Network],
    timeout_seconds: float,
    resolve: Resolve,
) -> Answer:
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _post(httpx.URL(url), body, headers, allowed, resolve)
    except TimeoutError:
        return Answer(None, f"no answer within {timeout_seconds:g} s")
    except _Refused as error:
        return Answer(None, str(error))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        return Answer(None, f"{type(error).__name__}: {error}"[:SHOWN])


async def _post(
    url: httpx.URL, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network], resolve: Resolve
) -> Answer:
    places = await _places(url, allowed, resolve)
    secure = url.scheme == "https"
    host = url.raw_host.decode("ascii")
    sent = {"content-type": "application/json", "user-agent": "gpuyard", **headers, "host": url.netloc.decode("ascii")}
    async with httpx.AsyncClient(verify=_trust() if secure else False, trust_env=False, timeout=None) as client:  # noqa: S113 - bounded as a whole
        for place in places:
            request = client.build_request(
                "POST",
                url.copy_with(host=str(place)),
                content=body,
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
    """Give the addresses to connect to. Raises _Refused when there is none that may be reached."""
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = [parse_address(text) for text in await resolve(url.raw_host.decode("ascii"), port)]
    except socket.gaierror as error:
        raise _Refused(f"{url.host} cannot be resolved: {error.strerror or error}") from None
    good = [address for address in found if may_reach(address, allowed)]
    if url.scheme != "https":
        good = [address for address in good if is_allowed(address, allowed)]
    if not good:
        raise _Refused(_why(url.host, found))
    return good[:ADDRESSES]


async def _resolve(host: str, port: int) -> Sequence[str]:
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _judged(response: httpx.Response) -> Answer:
    if response.is_success:
        return Answer(response.status_code, None)
    note = ", and redirects are not followed" if response.status_code in _REDIRECTS else ""
    return Answer(response.status_code, f"it answered HTTP {response.status_code}{note}")


def _why(host: str, found: Sequence[Address]) -> str:
    where = ", ".join(str(address) for address in found[:ADDRESSES])
    return (
        f"{host} is at {where or 'no address'}, which is not on the public Internet over https: an operator allows a "
        "network by webhook_networks"
    )


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


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Threads of their own: those of a loop are waited for at its end, and a resolver may hang."""
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="webhook-resolver")


@cache
def _trust() -> SSLContext:
    """The certificates of this machine, or of SSL_CERT_FILE. Read once: it takes 0.2 s."""
    return httpx.create_ssl_context()
