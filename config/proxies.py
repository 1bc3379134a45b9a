"""The proxy on the way to the API, as the environment names it for every program: HTTPS_PROXY, HTTP_PROXY, NO_PROXY.

For the API alone. This machine's own loopback, runtimes and the broker are reached directly.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from config.broker_url import is_loopback


def proxy_for(url: str) -> str | None:
    """Give the URL of the proxy for `url`. None: none is named, or NO_PROXY names the host, or no proxy would know it.

    That is so of this machine's loopback, and of a name without a dot, such as `api` between containers.
    Raises ValueError for a proxy of another kind, SOCKS for one.
    """
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - takes long, and most processes call nobody

    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or not {".", ":"} & set(host) or proxy_bypass(_place(url)):
        return None
    named = getproxies()
    found = named.get(parts.scheme) or named.get("all")
    if not found:
        return None
    proxy = found if "://" in found else f"http://{found}"
    if not proxy.startswith(("http://", "https://")) or not urlsplit(proxy).hostname:
        raise ValueError(
            f"the environment's {parts.scheme.upper()}_PROXY or ALL_PROXY is no http:// or https:// URL; have NO_PROXY "
            f"name {host}, where no proxy is needed"
        )
    return proxy


def directly_to(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variable that has a process in `environment` call the API at `url` without a proxy."""
    named = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return {"no_proxy": named if named.strip() == "*" else ",".join(part for part in (named, _place(url)) if part)}


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
