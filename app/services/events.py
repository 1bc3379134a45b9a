"""Reading events by a cursor (PROTOCOL 9)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.db import events as events_sql
from app.db import tokens as tokens_sql
from app.db.tables import Event
from app.domain.batches import ENDED
from app.schemas.events import EventObject
from app.schemas.listing import Listing, page
from app.services import cursors
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch

MAX_EVENTS_LISTED = 1000
_ENDS = {f"batch.{state.value}" for state in ENDED}


@dataclass(frozen=True, slots=True)
class Look:
    """Events of a batch behind a cursor; `last`: no more will ever come behind them."""

    events: list[EventObject]
    last: bool


NOTHING = Look([], last=False)


def news(
    yard: Yard, batch_ids: Collection[str], token_ids: Collection[str]
) -> tuple[Mapping[str, int], Collection[str]]:
    """Give the cursor behind the newest event of each batch that may be read, and which keys of readers were revoked.

    Batches without an event are left out.
    """
    with yard.store.read() as session:
        return events_sql.heads(session, batch_ids), tokens_sql.revoked(session, token_ids)


def listed(
    yard: Yard,
    caller: Caller,
    *,
    after: str | None = None,
    subject: str | None = None,
    limit: int = 100,
    newest_first: bool = False,
) -> Listing[EventObject]:
    """List the org's events behind the cursor, oldest first unless told. Raises BadRequest for what is no cursor."""
    seq = cursors.parse(after)
    org_id, operator = caller.org_id, caller.operator
    with yard.store.read() as session:
        found = (
            events_sql.before(
                session, seq if after else None, org_id=org_id, operator=operator, subject=subject, limit=limit + 1
            )
            if newest_first
            else events_sql.after(session, seq, org_id=org_id, operator=operator, subject=subject, limit=limit + 1)
        )
    data = [_shown(event) for event in found[:limit]]
    return page(data, has_more=len(found) > limit)


def of_batch(yard: Yard, caller: Caller, batch_id: str, after: int) -> Look:
    """Look at a batch's events behind the cursor. Raises NotFound."""
    with yard.store.read() as session:
        # The state first: it was committed with its event, which the queries after it then see. Or before it, and yet
        # the event is found: then nothing new would ever have the reader look again.
        batch = own_batch(session, caller, batch_id)
        found = events_sql.after(
            session,
            after,
            org_id=caller.org_id,
            operator=caller.operator,
            subject=batch_id,
            limit=MAX_EVENTS_LISTED,
        )
        more = len(found) == MAX_EVENTS_LISTED or events_sql.unsettled(session, batch_id)
    has_ended = batch.state in ENDED or any(event.type in _ENDS for event in found)
    return Look([_shown(event) for event in found], last=has_ended and not more)


def _shown(event: Event) -> EventObject:
    return EventObject(
        id=str(event.seq),
        at=event.at.timestamp(),
        type=event.type,
        subject=event.subject,
        actor=event.actor,
        data=event.data,
    )
