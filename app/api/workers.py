"""`/workers/*`: the workers' own routes (DESIGN 8, PROTOCOL 2 to 6). No answer of theirs ever holds a key."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from app.api import contents
from app.api.beats import Beats
from app.api.contents import CONTENT, DOWNLOAD
from app.api.guarding import HandInRoute, HeartbeatRoute, TheCaller, TheInFlight, TheYard, WorkerRoute
from app.api.hand_ins import receive
from app.api.in_flight import UnderWay
from app.api.threads import WORKER_CONTENTS, WORKERS
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
from app.schemas.segments import HandInAnswer, Progress
from app.schemas.workers import Bye, Heartbeat, HeartbeatAnswer, Hello, Welcome
from app.services import claims, files, leases, model_progress, row_starts, workers
from app.services.claim_answers import with_rows
from app.services.heartbeats import Beat

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
async def claim(yard: TheYard, caller: TheCaller, request: ClaimRequest) -> ClaimAnswer:
    """Grant leases."""
    granted = await WORKERS.run(claims.grant_shards, yard, caller, request)
    if not granted.grants:
        return granted
    return await WORKER_CONTENTS.run(with_rows, yard, granted)


@router.post("/workers/start-row")
def start_row(yard: TheYard, caller: TheCaller, start: RowStart) -> RowStartAnswer:
    """Note which row of a cautious shard is about to start."""
    return row_starts.start_row(yard, caller, start)


@router.post("/workers/release")
def release(yard: TheYard, caller: TheCaller, request: ReleaseRequest, boot_id: BootId = None) -> EndAnswer:
    """Take leases back."""
    return leases.release(yard, caller, request, boot_id=boot_id)


@router.post("/workers/report-failure")
async def fail(yard: TheYard, caller: TheCaller, report: FailureReport, boot_id: BootId = None) -> EndAnswer:
    """Take a failure."""
    threads = WORKER_CONTENTS if leases.reads_content(report) else WORKERS
    return await threads.run(leases.fail, yard, caller, report, boot_id=boot_id)


@router.get("/workers/input/{file_id}", response_class=Response, openapi_extra=DOWNLOAD, responses=CONTENT)
async def read_input(
    yard: TheYard, caller: TheCaller, in_flight: TheInFlight, request: Request, file_id: str
) -> Response:
    """Send the input of a batch that the caller's workers hold shards of."""
    with in_flight.sending(UnderWay.INPUTS, caller.org_id) as sending:
        found = await WORKERS.run(files.leased_content, yard, caller, file_id)
        return sending.keep(await WORKER_CONTENTS.run(contents.send, yard, found, request, WORKER_CONTENTS))


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
async def hand_in(
    yard: TheYard, caller: TheCaller, in_flight: TheInFlight, request: Request, boot_id: BootId = None
) -> HandInAnswer:
    """Take finished rows."""
    return await receive(yard, caller, in_flight, request, boot_id=boot_id)
