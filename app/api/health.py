"""`/healthz`: the process answers. `/readyz`: it can also do its work."""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import JSONResponse

from app.api.guarding import GuardedRoute, TheYard
from app.services import readiness

router = APIRouter(route_class=GuardedRoute, tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process is alive; touches nothing."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(yard: TheYard) -> JSONResponse:
    """Say whether database, schema and contents can be used, and how old each sweep's last run is."""
    found = readiness.look(yard, for_anybody=True)
    return JSONResponse({"ready": found.ready, **asdict(found)}, 200 if found.ready else 503)
