"""`/v1/batches` (OPENAI_CONTRACT 1.1 to 1.7)."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from app.api.guarding import GuardedRoute, TheCaller, TheInFlight, TheYard
from app.api.in_flight import Download, UnderWay
from app.api.threads import CONTENTS, RETRIES
from app.domain.first_rows import MAX_KIND
from app.schemas.batches import BatchObject, NewBatch, NewRetry, RowErrors
from app.schemas.listing import Listing
from app.services import batches, results, retries, row_errors, stops

router = APIRouter(route_class=GuardedRoute, tags=["batches"])

Limit = Annotated[int, Query(ge=1, le=batches.MAX_BATCHES_LISTED)]
RetryCount = Annotated[int, Header(alias="x-stainless-retry-count", ge=0, le=1000)]
IdempotencyKey = Annotated[str | None, Header(max_length=255)]
RowLimit = Annotated[int, Query(ge=0, le=row_errors.MAX_ROWS_LISTED)]
Code = Annotated[str | None, Query(max_length=MAX_KIND)]


@router.post("/v1/batches")
def create(
    yard: TheYard,
    caller: TheCaller,
    wanted: NewBatch,
    x_stainless_retry_count: RetryCount = 0,
    idempotency_key: IdempotencyKey = None,
) -> BatchObject:
    """Make a batch."""
    return batches.create(yard, caller, wanted, retry_count=x_stainless_retry_count, idempotency_key=idempotency_key)


@router.get("/v1/batches")
def listed(yard: TheYard, caller: TheCaller, after: str | None = None, limit: Limit = 20) -> Listing[BatchObject]:
    """List batches, newest first."""
    return batches.listed(yard, caller, after=after, limit=limit)


@router.get("/v1/batches/{batch_id}")
def retrieve(yard: TheYard, caller: TheCaller, batch_id: str) -> BatchObject:
    """Show a batch."""
    return batches.retrieve(yard, caller, batch_id)


@router.post("/v1/batches/{batch_id}/cancel")
def cancel(yard: TheYard, caller: TheCaller, batch_id: str) -> BatchObject:
    """Tell a batch to end, and show it."""
    stops.cancel(yard, caller, batch_id)
    return batches.retrieve(yard, caller, batch_id, reduced=True)


@router.post("/v1/batches/{batch_id}/retry")
async def retry(
    yard: TheYard,
    caller: TheCaller,
    in_flight: TheInFlight,
    batch_id: str,
    wanted: NewRetry | None = None,
    x_stainless_retry_count: RetryCount = 0,
    idempotency_key: IdempotencyKey = None,
) -> BatchObject:
    """Make a batch that runs rows of an ended one again: those that failed, or as the body says."""
    with in_flight.hold(UnderWay.RETRIES, caller.org_id):
        return await RETRIES.run(
            retries.retry,
            yard,
            caller,
            batch_id,
            wanted or NewRetry(),
            retry_count=x_stainless_retry_count,
            idempotency_key=idempotency_key,
        )


@router.get("/v1/batches/{batch_id}/results", response_class=StreamingResponse)
async def read_results(
    yard: TheYard,
    caller: TheCaller,
    in_flight: TheInFlight,
    batch_id: str,
    after: str | None = None,
    *,
    with_retries: bool = False,
) -> Download:
    """Send results as JSON lines: what is stored behind the cursor while it runs, all of it after the end.

    `with_retries` puts those of its retries in: of each row the latest success, else the latest failure.
    """
    with in_flight.sending(UnderWay.DOWNLOADS, caller.org_id) as sending:
        found = await CONTENTS.run(results.read, yard, caller, batch_id, after=after, with_retries=with_retries)
        headers = {"x-next-after": found.next_after} if found.next_after is not None else {}
        answer = Download(found.pieces(), headers=headers, media_type="application/jsonl", threads=CONTENTS)
        return sending.keep(answer)


@router.get("/v1/batches/{batch_id}/errors")
async def read_errors(
    yard: TheYard,
    caller: TheCaller,
    in_flight: TheInFlight,
    batch_id: str,
    code: Code = None,
    limit: RowLimit = 0,
) -> RowErrors:
    """Say why rows failed, most frequent first, and list some; of a batch that runs by a look at the last ones."""
    with in_flight.hold(UnderWay.DOWNLOADS, caller.org_id):
        return await CONTENTS.run(row_errors.top, yard, caller, batch_id, code=code, limit=limit)
