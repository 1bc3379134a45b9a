"""Every route, every scope, every other org: who gets in (DESIGN 11)."""

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import APIRoute

from app.api.access import ACCESS, scopes_of
from app.services.context import IMPLIED
from tests.served import Served

SCOPES = ("read", "submit", "worker", "metrics", "admin")


def routes(served: Served) -> Iterator[tuple[str, str]]:
    for path, operations in served.app.openapi()["paths"].items():
        yield from ((method.upper(), path) for method in operations)


def call(http: httpx.Client, route: str) -> httpx.Response:
    method, path = route.split(" ")
    path = re.sub(r"\{[^}]*\}", "none", path)
    return http.request(method, path, json={} if method in {"POST", "PATCH"} else None)


def test_the_table_lists_exactly_the_routes_there_are(served_on_sqlite: Served) -> None:
    page = {f"GET {path}" for path in ("/", "/page/{name}")}
    hidden = (
        page
        | {"HEAD /v1/files/{file_id}/content"}
        | {f"POST /v1/{name}" for name in ("chat/completions", "completions", "embeddings", "responses")}
    )
    listed = {route.replace(":path", "") for route in ACCESS}
    assert {f"{method} {path}" for method, path in routes(served_on_sqlite)} == listed - hidden


def test_a_route_that_nobody_decided_about_cannot_be_made() -> None:
    with pytest.raises(LookupError):
        scopes_of({"GET"}, "/v1/secrets")


def test_each_scope_opens_its_routes_and_no_other(served_on_sqlite: Served) -> None:
    for scope in SCOPES:
        with served_on_sqlite.http(served_on_sqlite.key(scope)) as http:
            answers = {route: call(http, route).status_code for route in ACCESS}
        for route, status in answers.items():
            needed = ACCESS[route]
            may = not needed or bool(set(needed) & IMPLIED[scope])
            # An admin of the operator's org may all that admins may, so 403 is the scope's and nothing else's.
            assert (status == 403) is not may, f"{scope} at {route}: {status}"
            assert status < 500, f"{scope} at {route}: {status}"


def test_nothing_but_health_and_the_page_is_open(served_on_sqlite: Served) -> None:
    for key in (None, "gk-wrong", ""):
        with served_on_sqlite.http(key) as http:
            answers = {route: call(http, route) for route in ACCESS}
        for route, answer in answers.items():
            needed = ACCESS[route]
            assert (answer.status_code == 401) is bool(needed), route
            if needed and not route.startswith("HEAD"):
                assert answer.json()["error"]["code"] == ("invalid_api_key" if key else "missing_api_key")


def test_a_key_is_looked_at_before_the_body(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http(None) as http:
        for route in ("/v1/batches", "/v1/files", "/workers/claim"):
            assert http.post(route, content=b"{not json").status_code == 401


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "gk-x", "Bearer \xff\xfe", "Bearer a b"])
def test_a_strange_authorization_is_a_401(served_on_sqlite: Served, header: str) -> None:
    with served_on_sqlite.http(None) as http:
        answer = http.get("/v1/files", headers=[(b"authorization", header.encode("latin-1"))])
    assert answer.status_code == 401


def test_a_revoked_key_fails_at_the_next_call(served: Served) -> None:
    with served.http() as admin:
        made = admin.post("/v1/tokens", json={"name": "gone soon", "scopes": ["read"]}).json()
        with served.http(made["secret"]) as http:
            assert http.get("/v1/files").status_code == 200
            revoked = admin.delete(f"/v1/tokens/{made['id']}").json()
            assert revoked["revoked_at"] is not None
            assert http.get("/v1/files").status_code == 401
        assert admin.delete(f"/v1/tokens/{made['id']}").json() == revoked


def test_a_secret_is_shown_once_and_stored_nowhere(served: Served) -> None:
    with served.http() as admin:
        made = admin.post("/v1/tokens", json={"name": "gpu1", "scopes": ["worker"], "single_worker": True}).json()
        assert re.fullmatch(r"gk-[A-Za-z0-9_-]{43}", made["secret"])
        listed = admin.get("/v1/tokens").json()["data"]
        assert made["secret"] not in str(listed)
        assert {token["name"] for token in listed} == {"gpu1", "first admin key"}
        assert made["secret"].startswith(next(t["prefix"] for t in listed if t["name"] == "gpu1"))
        named_badly = admin.post("/v1/tokens", json={"name": "gpu 1", "single_worker": True})
        assert (named_badly.status_code, named_badly.json()["error"]["param"]) == (400, "name")


def test_only_the_operator_makes_orgs_and_keys_for_them(served: Served) -> None:
    theirs = served.key("admin", org="other")
    with served.http(theirs) as http:
        assert http.get("/v1/orgs").status_code == 403
        assert http.post("/v1/orgs", json={"name": "third"}).status_code == 403
        assert http.post("/v1/tokens", json={"name": "x", "org": "default"}).status_code == 403
        mine = http.post("/v1/tokens", json={"name": "x", "org": "other"})
        assert mine.status_code == 200
        assert {token["name"] for token in http.get("/v1/tokens").json()["data"]} == {"test", "x"}
    with served.http() as http:
        assert http.delete(f"/v1/tokens/{mine.json()['id']}").status_code == 404
        assert http.post("/v1/orgs", json={"name": "other"}).status_code == 409
        assert http.post("/v1/tokens", json={"name": "x", "org": "nope\0x"}).status_code == 400


def test_the_use_of_a_key_is_noted(served: Served) -> None:
    with served.http() as http:
        assert http.get("/v1/files").status_code == 200
    assert served.app.state.used_tokens == {served.operator().token_id}


def test_every_guarded_route_is_an_api_route(served_on_sqlite: Served) -> None:
    outside = [
        route.path
        for route in served_on_sqlite.app.routes
        if not isinstance(route, APIRoute) and hasattr(route, "path")
    ]
    assert set(outside) <= {"/openapi.json"}
