"""What a use case refuses, split by what the caller should do about it.

Refusal
├── BadRequest         mend the arguments              400
│   └── Encoded        send the body uncompressed      415
├── Unauthenticated    send a valid key                401
├── Forbidden          use a key that may              403
├── NotFound           it is not there, or not yours   404
├── Conflict           its state does not allow it     409, never retried by itself
├── TooLarge           send less                       413
├── LimitReached       delete something first          429, never retried by itself
├── Unreadable         an operator repairs the row     500, never retried by itself
└── TryLater           nothing is wrong, wait          503
    └── TooManyAtOnce  your org has too many under way 429
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


class Encoded(BadRequest):
    """The body is compressed. Sent with `accept-encoding: identity`."""

    status = 415


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


class LimitReached(Refusal):
    """The org has as much as it may have. Sent with `x-should-retry: false`: stock SDKs retry a 429 without it."""

    status = 429
    kind = "insufficient_quota"


class Unreadable(Refusal):
    """What is stored of the object cannot be read. Sent with `x-should-retry: false`."""

    status = 500
    kind = "server_error"


class TryLater(Refusal):
    """A part of the service is away for the moment."""

    status = 503
    kind = "service_unavailable_error"


class TooManyAtOnce(TryLater):
    """The org has too many calls of this kind under way; when some of them have ended this one is taken."""

    status = 429
    kind = "rate_limit_error"
