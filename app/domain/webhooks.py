"""Webhooks: which events are sent, how they are signed, when one is sent again, and where to (OPENAI_CONTRACT 1.11).

The form is that of standardwebhooks.com, which OpenAI's own library checks.
"""

import base64
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from app.domain.batches import ENDED, BatchState

EVENT_TYPES = tuple(sorted(f"batch.{state.value}" for state in ENDED))
"""What an endpoint may ask for: the ends of batches."""

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 4 * 3600.0
MAX_TRIES = 30
"""With the pauses between them: about three days."""

SECRET_PREFIX = "whsec_"  # noqa: S105 - how every secret begins
SECRET_BYTES = 24
HINT_LENGTH = 4

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))
"""Of no use on the public Internet by IANA's registry, and taken for a part of it by some versions of Python."""


def event_type(state: BatchState) -> str | None:
    """Name the event that a batch's move to `state` is for the outside; None when it is none."""
    return f"batch.{state.value}" if state in ENDED else None


def delivery_id(batch_id: str, number: int) -> str:
    """Give `webhook-id`: the same at every try, so that a receiver knows what it has had."""
    return f"wh_{batch_id.removeprefix('batch_')}_{number}"


def event_id(batch_id: str) -> str:
    """Give the id of the event that a batch has ended, the same for every endpoint."""
    return f"evt_{batch_id.removeprefix('batch_')}"


def payload(type_: str, batch_id: str, *, created_at: int) -> bytes:
    """Write the body. `created_at` is the moment of the event in Unix seconds; every try sends the same bytes."""
    body = {
        "id": event_id(batch_id),
        "object": "event",
        "type": type_,
        "created_at": created_at,
        "data": {"id": batch_id},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def secret(key: bytes, endpoint_id: str, generation: int) -> str:
    """Derive an endpoint's signing secret: whoever lacks `key` learns nothing of it from what is stored."""
    derived = hmac.digest(key, f"webhook:{endpoint_id}:{generation}".encode(), sha256)
    return SECRET_PREFIX + base64.b64encode(derived[:SECRET_BYTES]).decode()


def hint(of_secret: str) -> str:
    """Give what people may see of a secret, to tell two apart."""
    return f"{SECRET_PREFIX}…{of_secret[-HINT_LENGTH:]}"


def headers(id_: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> Mapping[str, str]:
    """Sign a try at `timestamp` (Unix seconds) with each of `secrets`: a receiver accepts any one that it knows."""
    signed = b".".join((id_.encode(), str(timestamp).encode(), body))
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{_signature(each, signed)}" for each in secrets),
    }


def _signature(of_secret: str, signed: bytes) -> str:
    key = base64.b64decode(of_secret.removeprefix(SECRET_PREFIX))
    return base64.b64encode(hmac.digest(key, signed, sha256)).decode()


def pause_seconds(tries: int) -> float:
    """Give the wait after so many tries that failed: 5 s, doubling, four hours at most."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 32), LONGEST_PAUSE_SECONDS)


def networks(given: Sequence[str]) -> tuple[Network, ...]:
    """Read networks such as `10.0.0.0/8`. Raises ValueError that names the one that is none."""
    return tuple(ip_network(text) for text in given)


def parse_address(text: str) -> Address:
    """Read what a resolver gave; the scope of a link-local one says nothing of where it is."""
    return ip_address(text.partition("%")[0])


def is_allowed(address: Address, allowed: Iterable[Network]) -> bool:
    """Tell whether `address` lies in a network that the operator named."""
    return any(_meant(address)[0] in network for network in allowed)


def may_reach(address: Address, allowed: Sequence[Network]) -> bool:
    """Tell whether a webhook may be sent to `address`: one of the public Internet, or of an allowed network."""
    return all(is_allowed(each, allowed) or _is_public(each) for each in _meant(address))


def _is_public(address: Address) -> bool:
    # Of IPv6 what is allotted is named, not what is not: elsewhere lie forms of IPv4 addresses that a gateway of the
    # operator's own may translate to private ones, such as 64:ff9b:1::/48 (RFC 8215).
    allotted = isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST or address in _NAT64
    special = any(address in network for network in _SPECIAL)
    return allotted and address.is_global and not address.is_multicast and not special


def _meant(address: Address) -> list[Address]:
    """Give the address, and the IPv4 one that a gateway would send it on to."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    wrapped = address.sixtofour or (address.teredo[1] if address.teredo is not None else None)
    if address in _NAT64:
        wrapped = IPv4Address(int(address) & 0xFFFFFFFF)
    return [address] if wrapped is None else [address, wrapped]
