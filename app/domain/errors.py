"""What a use case refuses, split by what the caller should do about it.

Refusal
├── BadRequest         mend the arguments              400
├── Unauthenticated    send a valid key                401
├── Forbidden          use a key that may              403
├── NotFound           it is not there, or not yours   404
├── Conflict           its state does not allow it     409, never retried by itself
├── TooLarge           send less                       413
└── TryLater           nothing is wrong, wait          503
    └── TooManyInFlight   wait for your own calls      429
"""


class Refusal(Exception):
    """A use case's typed *no*. `code` and `param` travel in OpenAI's error envelope."""

    status = 400
    kind = "invalid_request_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class BadRequest(Refusal):
    """The arguments are wrong; the message says how to mend them."""


class Unauthenticated(Refusal):
    """No key, an unknown key or a revoked one."""

    status = 401
    kind = "authentication_error"


class Forbidden(Refusal):
    """The key is good and may not do this."""

    status = 403
    kind = "permission_error"


class NotFound(Refusal):
    """No such object for this caller; another org's object looks the same (DESIGN 11)."""

    status = 404


class Conflict(Refusal):
    """The object's state does not allow it. Sent with `x-should-retry: false`."""

    status = 409


class TooLarge(Refusal):
    """More bytes than a limit allows."""

    status = 413


class TryLater(Refusal):
    """A part of the service is away for the moment."""

    status = 503
    kind = "service_unavailable_error"


class TooManyInFlight(TryLater):
    """As many calls of this kind as may run at a time are running."""

    status = 429
    kind = "rate_limit_error"
