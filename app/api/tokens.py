"""`/v1/tokens` and `/v1/orgs` (TK-01, TK-02, TK-14)."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.schemas.listing import Listing
from app.schemas.tokens import NewOrg, NewToken, OrgInfo, Token, TokenWithSecret
from app.services import orgs, tokens

router = APIRouter(route_class=GuardedRoute, tags=["tokens"])

Limit = Annotated[int, Query(ge=1, le=tokens.MAX_TOKENS_LISTED)]


@router.get("/v1/tokens")
def listed(
    yard: TheYard, caller: TheCaller, after: str | None = None, limit: Limit = tokens.MAX_TOKENS_LISTED
) -> Listing[Token]:
    """List the org's tokens, newest first, revoked ones too."""
    return tokens.listed(yard, caller, after=after, limit=limit)


@router.post("/v1/tokens")
def create(yard: TheYard, caller: TheCaller, wanted: NewToken) -> TokenWithSecret:
    """Make a token; its secret is in this answer and nowhere else."""
    return tokens.create(yard, caller, wanted)


@router.delete("/v1/tokens/{token_id}")
def revoke(yard: TheYard, caller: TheCaller, token_id: str) -> Token:
    """Revoke a token."""
    return tokens.revoke(yard, caller, token_id)


@router.get("/v1/orgs")
def listed_orgs(yard: TheYard, caller: TheCaller) -> Listing[OrgInfo]:
    """List all orgs; the operator only."""
    return Listing(data=orgs.listed(yard, caller))


@router.post("/v1/orgs")
def create_org(yard: TheYard, caller: TheCaller, wanted: NewOrg) -> OrgInfo:
    """Make an org; the operator only."""
    return orgs.create(yard, caller, wanted)
