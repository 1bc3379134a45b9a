"""The proxy on the way to the API, as the environment names it for every program: HTTPS_PROXY, HTTP_PROXY, NO_PROXY.

For the API alone. This machine's own loopback, runtimes and the broker are reached directly.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from config.broker_url import is_loopback

KINDS = ("http", "https", "socks5", "socks5h")
"""SOCKS, as of `ssh -D`: the proxy looks the API's name up, whichever of the two is named."""


def proxy_for(url: str) -> str | None:
    """Give the URL of the proxy for `url`. None: none is named, or NO_PROXY names the host, or no proxy would know it.

    That is so of this machine's loopback, and of a name without a dot, such as `api` between containers.
    Raises ValueError for a proxy of a kind that is not known.
    """
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - takes long, and most processes call nobody

    parts = urlsplit(url)
    host = parts.hostname or ""
    named = getproxies()
    if is_loopback(host) or not {".", ":"} & set(host) or proxy_bypass(_place(url)):
        return None
    if any(_covers(part.strip().lower(), host) for part in named.get("no", "").split(",")):
        return None
    found = named.get(parts.scheme) or named.get("all")
    if not found:
        return None
    proxy = found if "://" in found else f"http://{found}"
    if urlsplit(proxy).scheme not in KINDS or not urlsplit(proxy).hostname:
        raise ValueError(
            f"the environment's {parts.scheme.upper()}_PROXY or ALL_PROXY is no URL of a proxy that gpuyard knows "
            f"({', '.join(f'{kind}://' for kind in KINDS)}); have NO_PROXY name {host}, where no proxy is needed"
        )
    return proxy


def directly_to(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variable that has a process in `environment` call the API at `url` without a proxy."""
    named = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return {"no_proxy": named if named.strip() == "*" else ",".join(part for part in (named, _place(url)) if part)}


def _covers(part: str, host: str) -> bool:
    """Tell whether a part of NO_PROXY names a host in a way that other programs know and urllib does not.

    As in `*.example.org`, `10.0.0.0/8`, `fd00::5`. No name is looked up.
    """
    if part.startswith("*"):
        return host.endswith(part[1:])
    try:
        return ip_address(host) in ip_network(part.strip("[]"), strict=False)
    except ValueError:
        return False


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
