"""What a call of the control plane ends with when it is not an answer, split by what the caller does about it.

ControlPlaneError
├── TryLater         no answer, 3xx, 407-8, 429, 5xx   the same call again, later
├── Refused          400, 404, 413, a 429 for a quota  mend the call or give it up; never sent again as it is
│   └── LeaseLost    403 not_assigned, any other 409   drop the one job it is about, go on
└── Dismissed        401, 403 for access, 412, 426     stop every job, keep the spool, exit 1 with the reason
    ├── NameTaken    409 name_taken                    (at hello)
    ├── Superseded   409 superseded                    (another process of this install took over)
    └── NotKnown     404 no_worker                     (forgotten after a long silence, or by a restored database)

Source: R-11, PROTOCOL 3, A-30.
"""

import contextlib
from typing import Self

import httpx

_DISMISSING = frozenset({401, 403, 412, 426})
_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_TOO_MANY = 429
_PASSING = frozenset({407, 408, 425, _TOO_MANY})
"""407 is the word of a proxy that wants another password, on the way to an API at an http:// URL."""
PROXY_ALONE = frozenset({502, 503, 504})
"""What a proxy says when nobody answers behind it. A 503 of the API itself has a code."""
_LIMIT_REACHED = "limit_reached"
"""Of a 429 that says: your org has all that it may have. Any other 429 passes."""
_SERVER_ERROR = 500
BUG = 500
"""What the API says when it met a bug over this very call; what it cannot do for the moment is 503."""
REDIRECTS = range(300, 400)


class ControlPlaneError(Exception):
    """`status` is None when nothing answered. `code` and `param` are those of OpenAI's error envelope.

    `request_id` names the call, here and in the control plane's log.
    """

    request_id: str | None = None

    def __init__(
        self, message: str, *, status: int | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param

    @classmethod
    def of(cls, response: httpx.Response) -> Self:
        """Read the error envelope of a response that is read to its end; any other text becomes the message."""
        error: object = None
        with contextlib.suppress(ValueError, AttributeError):
            error = response.json().get("error")
        found = error if isinstance(error, dict) else {}
        code, param = found.get("code"), found.get("param")
        # A proxy's page for a browser says no more than its status does.
        text = "" if response.headers.get("content-type", "").startswith("text/html") else response.text[:500]
        return cls(
            str(found.get("message") or text or response.reason_phrase),
            status=response.status_code,
            code=None if code is None else str(code),
            param=None if param is None else str(param),
        )


class TryLater(ControlPlaneError):
    """Nothing is wrong with the call. `retry_after` is what the server asked for, in seconds."""

    retry_after: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether too many calls of this kind are under way; this one was not begun."""
        return self.status == _TOO_MANY or (self.code or "").startswith("too_many_")


class Refused(ControlPlaneError):
    """The call is answered, and the answer is no."""


class LeaseLost(Refused):
    """What the call was about is no longer this worker's."""


class Dismissed(ControlPlaneError):
    """The control plane wants nothing more of this caller."""


class NameTaken(Dismissed):
    """Another install lives under this worker's name."""


class Superseded(Dismissed):
    """A newer process of this install has said hello; this one is to stop its jobs and leave."""


class NotKnown(Dismissed):
    """The control plane knows no such worker of this key. What it was given is not its own any more; a hello is."""


_CONFLICTS: dict[str | None, type[ControlPlaneError]] = {"name_taken": NameTaken, "superseded": Superseded}


def error_of(response: httpx.Response) -> ControlPlaneError:
    """Choose the branch of the tree for a response with a status of 300 or more."""
    status = response.status_code
    if status in REDIRECTS:
        # The API never sends anybody elsewhere: a proxy does, for its own reasons, and may not do so later. It is not
        # followed, for the key would go along.
        place = response.headers.get("location", "another place")
        return TryLater(f"a proxy sends callers on to {place}: the server URL has to be the API's own", status=status)
    code = ControlPlaneError.of(response).code
    if code == _LIMIT_REACHED:
        return Refused.of(response)
    if status >= _SERVER_ERROR or status in _PASSING:
        later = TryLater.of(response)
        later.retry_after = _seconds(response.headers.get("retry-after"))
        return later
    if status == _CONFLICT:
        return _CONFLICTS.get(code, LeaseLost).of(response)
    if status == _NOT_FOUND and code == "no_worker":
        return NotKnown.of(response)
    if status == _FORBIDDEN and code == "not_assigned":
        return LeaseLost.of(response)
    return (Dismissed if status in _DISMISSING else Refused).of(response)


def _seconds(value: str | None) -> float | None:
    """Read Retry-After's number form; its date form would need two clocks to agree, so it counts as absent."""
    return float(value) if value and value.isascii() and value.isdigit() else None
