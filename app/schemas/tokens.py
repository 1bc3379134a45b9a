"""Orgs and tokens on the wire.

POST   /v1/tokens        NewToken -> TokenWithSecret    the only time the secret is shown (TK-01)
GET    /v1/tokens        -> Listing of Token
DELETE /v1/tokens/{id}   -> Token
GET    /v1/orgs, POST /v1/orgs    the operator's admins only
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.schemas.wire import Wire

Scope = Literal["read", "submit", "worker", "metrics", "admin"]
Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


class NewToken(Wire):
    """Ask for a token. `org` (a name or an id) is the operator's to choose; everybody else's is their own.

    `single_worker` tokens give their name to the one worker that uses them (TK-02).
    """

    name: Label
    scopes: list[Scope] = Field(default=["submit"], min_length=1, max_length=16)
    single_worker: bool = False
    org: str | None = Field(default=None, max_length=128)


class Token(Wire):
    """A token as it is listed: what people need to tell it from others, nothing to use it with. Times in seconds."""

    id: str
    object: Literal["token"] = "token"
    org: str
    name: str
    prefix: str
    scopes: list[str]
    single_worker: bool
    created_at: int
    last_used_at: int | None = None
    revoked_at: int | None = None


class TokenWithSecret(Token):
    """A token just made, with its secret."""

    secret: str


class NewOrg(Wire):
    """Ask for an org."""

    name: Label


class OrgInfo(Wire):
    """An org. `operator`: its admins run the service."""

    id: str
    object: Literal["org"] = "org"
    name: str
    operator: bool
    created_at: int
