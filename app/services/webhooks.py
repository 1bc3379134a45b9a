"""Webhook endpoints of an org: made, changed, deleted; their secrets are shown once (OPENAI_CONTRACT 1.11)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sqlmodel import Session

from app.db import events, exclusive
from app.db import webhooks as webhooks_sql
from app.db.tables import WebhookEndpoint
from app.domain import webhooks
from app.domain.errors import BadRequest, NotFound
from app.domain.org_limits import check_quota
from app.schemas.listing import Listing, page
from app.schemas.webhooks import (
    EndpointHealth,
    NewWebhookEndpoint,
    WebhookEndpointChanges,
    WebhookEndpointDeleted,
    WebhookEndpointObject,
    WebhookEndpointWithSecret,
)
from app.services import cursors, ids, posting, signing_key
from app.services.context import Caller, Yard
from app.services.whole_rows import check_whole

MAX_LISTED = 100
OLD_SECRET = timedelta(hours=24)


class SecretUnknown(Exception):
    """This installation cannot tell an endpoint's secret any more; the message says what to do."""


def create(yard: Yard, caller: Caller, wanted: NewWebhookEndpoint) -> WebhookEndpointWithSecret:
    """Make an endpoint and give its secret, once. Raises BadRequest for a place no webhook may go to, LimitReached."""
    url = _checked(yard, wanted.url)
    key = signing_key.read_or_make(_key_file(yard))

    def work(session: Session) -> WebhookEndpointWithSecret:
        exclusive.hold(session, [f"webhook-endpoints:{caller.org_id}"])
        check_quota(yard.limits.org, "webhook_endpoints", webhooks_sql.count(session, caller.org_id))
        now = yard.store.now(session)
        endpoint_id = ids.new("whe_")
        secret = webhooks.secret(key, endpoint_id, 1)
        endpoint = WebhookEndpoint(
            id=endpoint_id,
            org_id=caller.org_id,
            name=wanted.name,
            url=url,
            event_types=_once_each(wanted.event_types),
            secret_hint=webhooks.hint(secret),
            created_at=now,
            updated_at=now,
        )
        session.add(endpoint)
        session.flush()
        note(session, endpoint, "webhook.created", caller, now)
        return WebhookEndpointWithSecret(**shown(endpoint).model_dump(), signing_secret=secret)

    return yard.store.run(work)


def listed(yard: Yard, caller: Caller, *, after: str | None = None, limit: int = 20) -> Listing[WebhookEndpointObject]:
    """List the org's endpoints, newest first. Raises BadRequest for an `after` that never was."""
    with yard.store.read() as session:
        after_seq = cursors.behind(
            after, lambda id_: webhooks_sql.seq_of(session, id_, caller.org_id), "No such webhook endpoint"
        )
        found = webhooks_sql.page(session, caller.org_id, after_seq=after_seq, limit=limit + 1)
    data = [shown(endpoint) for endpoint in found[:limit]]
    return page(data, has_more=len(found) > limit)


def retrieve(yard: Yard, caller: Caller, endpoint_id: str) -> WebhookEndpointObject:
    """Show an endpoint. Raises NotFound, Unreadable."""
    with yard.store.read() as session:
        endpoint = own(session, caller, endpoint_id)
    check_whole(endpoint, f"webhook endpoint {endpoint_id}")
    return shown(endpoint)


def update(yard: Yard, caller: Caller, endpoint_id: str, wanted: WebhookEndpointChanges) -> WebhookEndpointObject:
    """Change an endpoint, or have it told again after it was disabled. Raises NotFound, BadRequest."""
    url = None if wanted.url is None else _checked(yard, wanted.url)

    def work(session: Session) -> WebhookEndpointObject:
        endpoint = own(session, caller, endpoint_id, lock=True)
        now = yard.store.now(session)
        types = None if wanted.event_types is None else _once_each(wanted.event_types)
        asked = {"name": wanted.name, "url": url, "event_types": types}
        changed: dict[str, object] = {
            name: value for name, value in asked.items() if value is not None and value != getattr(endpoint, name)
        }
        for name, value in changed.items():
            setattr(endpoint, name, value)
        if wanted.enabled is not None and wanted.enabled != (endpoint.disabled_at is None):
            endpoint.disabled_at = None if wanted.enabled else now
            endpoint.disabled_reason = None if wanted.enabled else "an admin disabled it"
            changed["enabled"] = wanted.enabled
        if changed:
            endpoint.updated_at = now
            session.add(endpoint)
            note(session, endpoint, "webhook.changed", caller, now, changed=sorted(changed))
        return shown(endpoint)

    return yard.store.run(work)


def delete(yard: Yard, caller: Caller, endpoint_id: str) -> WebhookEndpointDeleted:
    """Delete an endpoint: nothing is sent to it any more, what waits included. Raises NotFound."""

    def work(session: Session) -> WebhookEndpointDeleted:
        endpoint = own(session, caller, endpoint_id, lock=True)
        now = yard.store.now(session)
        endpoint.deleted_at = now
        session.add(endpoint)
        note(session, endpoint, "webhook.deleted", caller, now)
        return WebhookEndpointDeleted(id=endpoint.id)

    return yard.store.run(work)


def rotate(yard: Yard, caller: Caller, endpoint_id: str, *, keep_old: bool) -> WebhookEndpointWithSecret:
    """Give an endpoint another secret, and show it once. `keep_old`: for a day tries are signed with both."""
    key = signing_key.read_or_make(_key_file(yard))

    def work(session: Session) -> WebhookEndpointWithSecret:
        endpoint = own(session, caller, endpoint_id, lock=True)
        now = yard.store.now(session)
        endpoint.generation += 1
        secret = webhooks.secret(key, endpoint.id, endpoint.generation)
        endpoint.secret_hint = webhooks.hint(secret)
        endpoint.old_secret_until = now + OLD_SECRET if keep_old else None
        endpoint.updated_at = now
        session.add(endpoint)
        note(session, endpoint, "webhook.rotated", caller, now, keep_old=keep_old)
        return WebhookEndpointWithSecret(**shown(endpoint).model_dump(), signing_secret=secret)

    return yard.store.run(work)


def signed(yard: Yard, endpoint: WebhookEndpoint, id_: str, body: bytes, now: datetime) -> dict[str, str]:
    """Give the headers of a try at `now`. Raises SecretUnknown."""
    try:
        key = signing_key.read(_key_file(yard))
    except OSError as error:
        raise SecretUnknown(f"the key of all webhook secrets cannot be read: {error.strerror or error}") from error
    secrets = [webhooks.secret(key, endpoint.id, endpoint.generation)]
    if webhooks.hint(secrets[0]) != endpoint.secret_hint:
        raise SecretUnknown("the key of all webhook secrets is another one than when this was made: rotate its secret")
    if endpoint.old_secret_until is not None and now < endpoint.old_secret_until:
        secrets.append(webhooks.secret(key, endpoint.id, endpoint.generation - 1))
    return dict(webhooks.headers(id_, int(now.timestamp()), body, secrets))


def shown(endpoint: WebhookEndpoint) -> WebhookEndpointObject:
    """Put an endpoint on the wire."""
    return WebhookEndpointObject(
        id=endpoint.id,
        name=endpoint.name,
        url=endpoint.url,
        event_types=endpoint.event_types,
        signing_secret_hint=endpoint.secret_hint,
        created_at=int(endpoint.created_at.timestamp()),
        updated_at=int(endpoint.updated_at.timestamp()),
        gpuyard=EndpointHealth(
            enabled=endpoint.disabled_at is None,
            disabled_at=seconds(endpoint.disabled_at),
            disabled_reason=endpoint.disabled_reason,
            last_success_at=seconds(endpoint.succeeded_at),
            last_failure_at=seconds(endpoint.failed_at),
            last_error=endpoint.last_error,
        ),
    )


def own(session: Session, caller: Caller, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint:
    """Read (or lock) an endpoint of the caller's org. Raises NotFound."""
    if lock:
        webhooks_sql.lock(session, endpoint_id)
    endpoint = webhooks_sql.find(session, endpoint_id, org_id=caller.org_id)
    if endpoint is None:
        raise NotFound(f"no webhook endpoint {endpoint_id!r}", code="webhook_endpoint_not_found", param="id")
    return endpoint


def _once_each(event_types: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(event_types))


def _checked(yard: Yard, url: str) -> str:
    try:
        return posting.check_url(url, yard.webhooks.networks)
    except ValueError as error:
        raise BadRequest(f"webhooks cannot be sent to this url: {error}", code="invalid_value", param="url") from None


def _key_file(yard: Yard) -> Path:
    if yard.webhooks.key_file is None:
        raise RuntimeError("this yard was opened without a place for the key of webhook secrets")
    return yard.webhooks.key_file


def note(session: Session, endpoint: WebhookEndpoint, kind: str, caller: Caller, now: datetime, **data: object) -> None:
    """Write the event of what somebody did to an endpoint."""
    said = {"name": endpoint.name, **data}
    events.record(
        session, now=now, type=kind, subject=endpoint.id, actor=caller.actor, org_id=endpoint.org_id, data=said
    )


def seconds(at: datetime | None) -> int | None:
    """Give a moment in Unix seconds."""
    return int(at.timestamp()) if at is not None else None
