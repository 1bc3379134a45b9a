"""`/workers/*`: the workers' own routes (DESIGN 8, PROTOCOL 2 to 6). No answer of theirs ever holds a key."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from pydantic import ValidationError

from app.api.beats import Beats
from app.api.errors import refusal_of
from app.api.guarding import HandInRoute, HeartbeatRoute, TheCaller, TheYard, WorkerRoute
from app.api.threads import WORKERS
from app.domain.errors import BadRequest, TooLarge
from app.schemas.claims import (
    ClaimAnswer,
    ClaimRequest,
    EndAnswer,
    FailureReport,
    ReleaseRequest,
    RowStart,
    RowStartAnswer,
)
from app.schemas.pulls import ModelProgress
from app.schemas.segments import HandInAnswer, HandInHeader, Progress
from app.schemas.workers import Bye, Heartbeat, HeartbeatAnswer, Hello, Welcome
from app.services import claims, handins, leases, model_progress, row_starts, workers
from app.services.heartbeats import Beat

MAX_HAND_IN_BYTES = 256 * 1024 * 1024
router = APIRouter(route_class=WorkerRoute, tags=["worker protocol"])
heartbeats = APIRouter(route_class=HeartbeatRoute, tags=["worker protocol"])
hand_ins = APIRouter(route_class=HandInRoute, tags=["worker protocol"])

_HAND_IN = {
    "requestBody": {
        "required": True,
        "description": "One line of JSON (`HandInHeader`), a newline, and the parts' bytes (app.schemas.segments).",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
BootId = Annotated[str | None, Header(alias="x-gpuyard-boot-id", max_length=128)]


@router.post("/workers/register")
def register(yard: TheYard, caller: TheCaller, hello: Hello) -> Welcome:
    """Take a worker in."""
    return workers.register(yard, caller, hello)


@heartbeats.post("/workers/{worker_id}/heartbeat")
async def heartbeat(caller: TheCaller, request: Request, worker_id: str, beat: Heartbeat) -> HeartbeatAnswer:
    """Renew leases."""
    beats: Beats = request.app.state.beats
    return await beats.take(Beat(caller, worker_id, beat))


@router.post("/workers/{worker_id}/bye", status_code=204)
def bye(yard: TheYard, caller: TheCaller, worker_id: str, word: Bye) -> None:
    """Let a worker go."""
    workers.bye(yard, caller, worker_id, word)


@router.post("/workers/claim")
def claim(yard: TheYard, caller: TheCaller, request: ClaimRequest) -> ClaimAnswer:
    """Grant leases."""
    return claims.claim(yard, caller, request)


@router.post("/workers/start-row")
def start_row(yard: TheYard, caller: TheCaller, start: RowStart) -> RowStartAnswer:
    """Note which row of a cautious shard is about to start."""
    return row_starts.start_row(yard, caller, start)


@router.post("/workers/release")
def release(yard: TheYard, caller: TheCaller, request: ReleaseRequest, boot_id: BootId = None) -> EndAnswer:
    """Take leases back."""
    return leases.release(yard, caller, request, boot_id=boot_id)


@router.post("/workers/report-failure")
def fail(yard: TheYard, caller: TheCaller, report: FailureReport, boot_id: BootId = None) -> EndAnswer:
    """Take a failure."""
    return leases.fail(yard, caller, report, boot_id=boot_id)


@router.post("/workers/progress", status_code=204)
def progress(yard: TheYard, caller: TheCaller, report: Progress, boot_id: BootId = None) -> None:
    """Take live counts."""
    workers.progress(yard, caller, report, boot_id=boot_id)


@router.post("/workers/model-progress", status_code=204)
def pull_progress(yard: TheYard, caller: TheCaller, report: ModelProgress) -> None:
    """Take how far a pull is."""
    model_progress.note(yard, caller, report)


@hand_ins.post("/workers/results", openapi_extra=_HAND_IN)
@hand_ins.post("/workers/upload-results", openapi_extra=_HAND_IN)
async def hand_in(yard: TheYard, caller: TheCaller, request: Request, boot_id: BootId = None) -> HandInAnswer:
    """Take finished rows."""
    header, body = await _read_hand_in(request)
    return await WORKERS.run(handins.hand_in, yard, caller, header, body, boot_id=boot_id)


async def _read_hand_in(request: Request) -> tuple[HandInHeader, bytes]:
    """Split a hand-in into its header line and the parts' bytes (app.schemas.segments)."""
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_HAND_IN_BYTES:
            raise TooLarge(f"a hand-in has at most {MAX_HAND_IN_BYTES} bytes; send fewer rows", code="too_large")
    end = received.find(b"\n")
    if end < 0:
        raise BadRequest("a hand-in begins with one line of JSON", code="invalid_body")
    line = bytes(received[:end])
    del received[: end + 1]  # in place: a second copy of all rows would be the larger part of what this call needs
    try:
        return HandInHeader.model_validate_json(line), bytes(received)
    except ValidationError as error:
        raise refusal_of(dict(error.errors()[0])) from error
