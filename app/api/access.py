"""Who may call what: every route with the scopes that open it, any one of them (DESIGN 11).

A route that is not listed here cannot be added to the app. No scopes: open to everybody, and it must tell nothing. HEAD
is for whom GET is (app.api.heads).
"""

from collections.abc import Mapping

OPEN: tuple[str, ...] = ()

ACCESS: Mapping[str, tuple[str, ...]] = {
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
    "GET /metrics": ("metrics",),
    "GET /": OPEN,
    "GET /page/{name}": OPEN,
    "POST /v1/files": ("submit",),
    "GET /v1/files": ("read",),
    "GET /v1/files/{file_id}": ("read",),
    "DELETE /v1/files/{file_id}": ("submit",),
    "GET /v1/files/{file_id}/content": ("read", "worker"),
    "HEAD /v1/files/{file_id}/content": ("read", "worker"),
    "POST /v1/batches": ("submit",),
    "GET /v1/batches": ("read",),
    "GET /v1/batches/{batch_id}": ("read",),
    "POST /v1/batches/{batch_id}/cancel": ("submit",),
    "POST /v1/batches/{batch_id}/retry": ("submit",),
    "GET /v1/batches/{batch_id}/results": ("read",),
    "GET /v1/batches/{batch_id}/errors": ("read",),
    "GET /v1/batches/{batch_id}/events": ("read",),
    "GET /v1/events": ("read",),
    "GET /v1/models": ("read",),
    "GET /v1/models/{model_id:path}": ("read",),
    "POST /v1/chat/completions": ("read",),
    "POST /v1/completions": ("read",),
    "POST /v1/embeddings": ("read",),
    "POST /v1/responses": ("read",),
    "GET /v1/pools": ("read",),
    "POST /v1/pools": ("admin",),
    "PATCH /v1/pools/{name}": ("admin",),
    "GET /v1/workers": ("read",),
    "GET /v1/workers/{worker_id}": ("read",),
    "POST /v1/workers/{worker_id}/drain": ("admin",),
    "POST /v1/workers/{worker_id}/reset": ("admin",),
    "GET /v1/tokens": ("admin",),
    "POST /v1/tokens": ("admin",),
    "DELETE /v1/tokens/{token_id}": ("admin",),
    "GET /v1/webhook_event_types": ("read",),
    "POST /v1/webhook_endpoints": ("admin",),
    "GET /v1/webhook_endpoints": ("admin",),
    "GET /v1/webhook_endpoints/{endpoint_id}": ("admin",),
    "POST /v1/webhook_endpoints/{endpoint_id}": ("admin",),
    "DELETE /v1/webhook_endpoints/{endpoint_id}": ("admin",),
    "POST /v1/webhook_endpoints/{endpoint_id}/rotate_secret": ("admin",),
    "POST /v1/webhook_endpoints/{endpoint_id}/test": ("admin",),
    "GET /v1/webhook_endpoints/{endpoint_id}/deliveries": ("admin",),
    "POST /v1/webhook_endpoints/{endpoint_id}/redeliver": ("admin",),
    "GET /v1/orgs": ("admin",),
    "POST /v1/orgs": ("admin",),
    "POST /workers/register": ("worker",),
    "POST /workers/{worker_id}/heartbeat": ("worker",),
    "POST /workers/{worker_id}/bye": ("worker",),
    "POST /workers/poll": ("worker",),
    "POST /workers/claim": ("worker",),
    "POST /workers/start-row": ("worker",),
    "GET /workers/input/{file_id}": ("worker",),
    "POST /workers/release": ("worker",),
    "POST /workers/report-failure": ("worker",),
    "POST /workers/progress": ("worker",),
    "POST /workers/model-progress": ("worker",),
    "POST /workers/results": ("worker",),
    "POST /workers/upload-results": ("worker",),
}


def scopes_of(methods: set[str], path: str) -> tuple[str, ...]:
    """Give the scopes of a route. Raises LookupError for one that nobody decided about."""
    found = {ACCESS.get(f"{method} {path}") for method in methods}
    if len(found) != 1 or None in found:
        raise LookupError(f"{sorted(methods)} {path}: list it, with one set of scopes, in app.api.access")
    return found.pop() or OPEN
