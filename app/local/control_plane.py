"""What `gpuyard up` asks the API it has started: is it there, a worker key, who has registered."""

import time
from collections.abc import Iterable
from contextlib import suppress

import httpx

UNREADY_SECONDS = 5.0
"""An API that has begun to answer, and then says for so long that it is not ready, will not become so by waiting."""


class KeyRefused(Exception):
    """The API does not know the admin key: another database, or one that has had tokens before."""


class CertificateRefused(Exception):
    """The API's certificate is not trusted here, which does not pass with time; the message is OpenSSL's reason."""


class NotReady(Exception):
    """The API answers that it cannot serve, and not only for a moment; the message is its reason."""


def distrust(message: str) -> str | None:
    """Why a certificate was not trusted, out of the message of a failed call. None: it failed for something else."""
    if "CERTIFICATE_VERIFY_FAILED" not in message:
        return None
    return message.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0].rstrip(".")


def not_trusted(url: str, why: str) -> str:
    """Say that the certificate at `url` is not trusted here, and what it takes; `why` is OpenSSL's reason."""
    return (
        f"the certificate of {url} is not trusted here: {why}. It has to name that address, and where an authority "
        "of your own signed it, SSL_CERT_FILE the file of that authority"
    )


def http_client(url: str, *, key: str, timeout: float, proxy: str | None = None) -> httpx.Client:
    """Make a client of an API, by this proxy or none: it may be our own, here, of which no proxy knows."""
    # A transport of its own has httpx leave out the proxies of the environment.
    transport = httpx.HTTPTransport(verify=not url.startswith("http://"), proxy=proxy)
    return httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=timeout, transport=transport)


class ControlPlane:
    """A client with short waits: its caller has children to watch between two calls."""

    def __init__(self, url: str, *, key: str) -> None:
        self._http = http_client(url, key=key, timeout=5)
        self._unready_since: float | None = None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ready(self) -> bool:
        """Whether the API serves. Raises CertificateRefused, NotReady."""
        try:
            answer = self._http.get("/readyz")
        except httpx.TransportError as error:
            if why := distrust(str(error)):
                raise CertificateRefused(why) from error
            return False
        if answer.status_code != httpx.codes.OK:
            self._bear_with(answer)
        return answer.status_code == httpx.codes.OK

    def _bear_with(self, answer: httpx.Response) -> None:
        """Raise NotReady when it has said so for too long."""
        now = time.monotonic()
        self._unready_since = self._unready_since or now
        if now - self._unready_since > UNREADY_SECONDS:
            with suppress(ValueError, KeyError, AttributeError):
                parts = answer.json()["parts"].items()
                raise NotReady("; ".join(f"{part}: {state}" for part, state in parts if state != "ok"))

    def knows(self, key: str) -> bool:
        """Whether the API lets this key in anywhere. Raises httpx.HTTPError."""
        answer = self._http.get("/v1/workers", headers={"authorization": f"Bearer {key}"})
        return answer.status_code != httpx.codes.UNAUTHORIZED

    def create_worker_key(self) -> str:
        """A token for the workers of this machine. Raises KeyRefused, httpx.HTTPError."""
        answer = self._http.post("/v1/tokens", json={"name": "local-workers", "scopes": ["worker"]})
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise KeyRefused
        answer.raise_for_status()
        return str(answer.json()["secret"])

    def registered(self, names: Iterable[str], *, since: float) -> bool:
        """Whether each of these workers has been heard of since `since` (Unix time; its row may be older)."""
        with suppress(httpx.HTTPError, KeyError, ValueError):
            answer = self._http.get("/v1/workers")
            answer.raise_for_status()
            seen = {row["name"]: float(row["last_seen_at"]) for row in answer.json()["data"]}
            return all(seen.get(name, 0.0) >= since for name in names)
        return False
