"""Broker URLs: what is allowed, and the two spellings of a unix socket; and why a broker takes no messages.

Celery writes `redis+socket:///path?virtual_host=0`, redis-py `unix:///path?db=0`. Ours is Celery's.
Facts: a `rediss://` URL without certificate options connects without checking the certificate, so it is refused.
"""

import ipaddress
import os
import re
from urllib.parse import parse_qs, urlsplit

SCHEMES = ("redis", "rediss", "redis+socket", "sentinel", "memory")
_CHECKED = {"required", "cert_required"}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_NEXT_URL = re.compile(r";(?=[a-z][a-z0-9+]*://)")
_BEFORE_HOST = re.compile(r"(://[^:/?#@]*:).*@")
_REFUSALS = (
    ("maxmemory", "its memory is full", "raise its maxmemory, or see what fills it (`redis-cli --bigkeys`)"),
    ("MISCONF", "it cannot write to its disk", "make room on the broker's disk"),
    ("read only replica", "it is a replica", "name the primary in GPUYARD_BROKER_URL"),
    ("NOREPLICAS", "too few of its replicas are there", "bring them back"),
)
"""A part of the message of an error of Redis, what it means, what to do."""
_IN_QUERY = re.compile(r"([?&](?:ssl)?password=)[^&;]*")


def for_celery(url: str) -> str:
    """The URL as Celery wants it.

    Raises ValueError for an unknown scheme, for what cannot be read as a URL, and for TLS that would not check the
    broker's certificate; no message holds a part of the URL, which may be one of a password.
    """
    for each in _NEXT_URL.split(url):
        _check_form(each)
    if url.startswith("unix://"):
        url = "redis+socket://" + url.removeprefix("unix://").replace("?db=", "?virtual_host=").replace(
            "&db=", "&virtual_host="
        )
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"a broker URL starts with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    if parts.scheme == "rediss":
        return _checked(url)
    return url


def _check_form(url: str) -> None:
    """Raise ValueError for one whose password ends it too early, or whose port is none."""
    try:
        parts = urlsplit(url)
        reads = parts.port != 0 and ("@" in parts.netloc or "@" not in parts.path + parts.fragment)
    except ValueError:
        reads = False
    if not reads:
        raise ValueError(
            "it cannot be read: what is neither a letter nor a digit in its password has to be percent-encoded "
            "(%2F for /), and its port is a number from 1 to 65535"
        )


def _checked(url: str) -> str:
    """Spell the check of the certificate as both kombu and redis-py know it. Raises ValueError where there is none."""
    options = parse_qs(urlsplit(url).query)
    asked = options.get("ssl_cert_reqs", [])
    if len(asked) != 1 or asked[0].lower() not in _CHECKED:
        raise ValueError(
            "rediss:// would not check the broker's certificate: add ?ssl_cert_reqs=required&ssl_ca_certs=<file>"
        )
    if any(each.lower() != "true" for each in options.get("ssl_check_hostname", [])):
        raise ValueError(
            "ssl_check_hostname takes anybody's certificate for the broker's: "
            "leave it out, and have the broker's name or address in its certificate"
        )
    return url.replace(f"ssl_cert_reqs={asked[0]}", "ssl_cert_reqs=required")


def missing_file(url: str) -> str | None:
    """Name a file of certificates that the URL names and that cannot be read.

    At a connection it would be one more `No such file or directory`, without saying which.
    """
    options = parse_qs(urlsplit(url).query)
    named = [path for key in _FILES for path in options.get(key, [])]
    return next((path for path in named if not os.access(path, os.R_OK)), None)


def for_redis(url: str) -> str:
    """The same URL as redis-py wants it."""
    if not url.startswith("redis+socket://"):
        return url
    return "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")


def is_plain_to_another_host(url: str) -> bool:
    """Whether what is sent to a broker or an API, passwords and keys included, would cross a network unencrypted."""
    parts = urlsplit(url)
    return parts.scheme in {"redis", "http"} and not is_loopback(parts.hostname or "localhost")


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by its own word: localhost or a loopback address (no look-up is made)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def masked(url: str) -> str:
    """The URL, or several as Celery writes them, with each password replaced, for people to read.

    No parser is asked: in one that is written wrongly, with a slash in the password for one, there is a password, too.
    """
    hidden = (_BEFORE_HOST.sub(r"\1***@", each) for each in _NEXT_URL.split(url))
    return _IN_QUERY.sub(r"\1***", ";".join(hidden))


def refusal(error: Exception) -> tuple[str, str] | None:
    """Say why a broker that answers takes no messages, and what to do. None: `error` says nothing of the kind."""
    text = str(error)
    return next(((why, do) for words, why, do in _REFUSALS if words in text), None)
