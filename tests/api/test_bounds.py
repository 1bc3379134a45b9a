"""What a caller may send has a least and a most: a schema rule of all routes. What was stored before breaks none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter
from sqlalchemy import update
from sqlmodel import col

from app.api.main import create_app
from app.db.tables import Worker
from app.schemas.segments import HandInHeader
from app.services import metrics
from config.settings import ServerSettings
from tests.hands import Hands, runtime
from tests.served import Served
from tests.yards import set_rungs

DOCUMENT = create_app(ServerSettings()).openapi()
HEADERS: Mapping[str, Any] = {"/workers/results": HandInHeader, "/workers/upload-results": HandInHeader}
"""What routes read by themselves; FastAPI's description says only that it is bytes."""
LEAST, MOST = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
BOUNDS: Mapping[str, Sequence[set[str]]] = {
    "integer": (LEAST, MOST),
    "number": (LEAST, MOST),
    "string": ({"maxLength"},),
    "array": ({"maxItems"},),
}
"""Of each of these a schema must have one."""
NEVER: Sequence[set[str]] = (set(),)
HUGE = 10**400


def unbounded(schema: Mapping[str, Any], root: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Name what of a JSON schema takes a number, a text or a list of any size."""
    if "$ref" in schema:
        yield from unbounded(root[schema["$ref"].rsplit("/", 1)[1]], root, where)
        return
    choices = [choice for kind in ("anyOf", "oneOf", "allOf") for choice in schema.get(kind, ())]
    for choice in choices:
        yield from unbounded(choice, root, where)
    kind = schema.get("type", "anything")
    if choices or {"enum", "const"} & set(schema) or kind in {"boolean", "null"}:
        return
    if kind == "object" and ("properties" in schema or "additionalProperties" in schema):
        yield from _of_object(schema, root, where)
    elif not all(bounds & set(schema) for bounds in BOUNDS.get(kind, NEVER)) and schema.get("format") != "binary":
        yield f"{where} ({kind})"
    if kind == "array":
        yield from unbounded(schema.get("items", {}), root, f"{where}[]")


def _of_object(schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, root, f"{where}.{name}")
    values = schema.get("additionalProperties", False)
    if values is not False:
        names = {"type": "string", **schema.get("propertyNames", {})}
        if "maxProperties" not in schema and "enum" not in names:
            yield f"{where} (object)"
        yield from unbounded(names, root, f"{where}.<key>")
        yield from unbounded(values if isinstance(values, dict) else {}, root, f"{where}.*")


def bodies() -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Each body of each route: its name, its schema, and where the schemas are that it refers to."""
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                label = f"{method.upper()} {path}"
                if kind == "application/octet-stream":
                    own = HEADERS[path].model_json_schema()
                    yield label, own, own["$defs"]
                else:
                    yield label, content["schema"], DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize(("label", "schema", "root"), [pytest.param(*body, id=body[0]) for body in bodies()])
def test_everything_in_a_body_is_bounded(label: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    assert list(unbounded(schema, root, label)) == []


def test_every_number_of_a_query_a_header_or_a_path_is_bounded() -> None:
    """Texts are, too: by the longest head that the server reads."""
    found = [
        wrong
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", ())
        for wrong in unbounded(parameter["schema"], {}, f"{method.upper()} {path} {parameter['name']}")
        if not wrong.endswith("(string)")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (int, ["x (integer)"]),
        (Annotated[float, Field(ge=0)], ["x (number)"]),
        (Annotated[float, Field(gt=0, lt=1)], []),
        (Annotated[float, Field(ge=0, le=1)] | None, []),
        (list[Annotated[int, Field(ge=0, le=1)]], ["x (array)"]),
        (Annotated[list[int], Field(max_length=3)], ["x[] (integer)"]),
        (dict[str, bool], ["x (object)", "x.<key> (string)"]),
        (Annotated[dict[Annotated[str, Field(max_length=3)], float], Field(max_length=3)], ["x.* (number)"]),
        (dict[str, Any], ["x (object)", "x.<key> (string)", "x.* (anything)"]),
        (Any, ["x (anything)"]),
    ],
)
def test_the_rule_finds_what_has_no_bound(kind: Any, wrong: list[str]) -> None:
    assert list(unbounded(TypeAdapter(kind).json_schema(), {}, "x")) == wrong


SAMPLES = [
    {"memory_total": HUGE, "memory_available": HUGE, "disk_free": HUGE, "cpus": HUGE},
    {"load1": HUGE},
    {"load1": 1e308, "cpus": 0},
    {"load1": -1.0},
    {"gpus": [{"index": 0, "name": "a", "memory_used": HUGE, "utilization": HUGE}]},
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_out_of_bounds_is_refused_and_every_view_goes_on(served: Served, sample: dict[str, Any]) -> None:
    worker = Hands(served)
    with served.http(served.key("worker")) as http:
        beat = {"boot_id": "boot-gpu1", "phase": "ready", "sample": sample}
        answer = http.post(f"/workers/{worker.worker_id}/heartbeat", json=beat)
        assert (answer.status_code, answer.json()["error"]["code"]) in {
            (400, "invalid_value"),
            (400, "integer_above_max_value"),
        }
    are_there(served, worker.worker_id)
    worker.plane.close()


def test_what_was_stored_out_of_bounds_breaks_no_view(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "KEEP_SECONDS", 0.0)
    worker = Hands(served)
    bad = {"name": "b", "kind": "vllm", "alive": True, "slots": HUGE, "endpoints": ["/v1/" + "x" * 300]}
    for sample in (*SAMPLES, {"gpus": "none"}, {"gpus": [{"index": HUGE}, 7]}):
        stored = {
            "sample": sample,
            "runtimes": [bad, {"kind": 7}, "no runtime", runtime("m").model_dump()],
            "pulls": [{"number": HUGE, "runtime": "r", "model": "m", "status": "pulling"}, {"number": 1}],
            "timing": {"renew_seconds": HUGE, "grace_seconds": None, "toleration_seconds": 1e300},
        }
        with served.yard.store.begin() as session:
            session.execute(update(Worker).where(col(Worker.id) == worker.worker_id).values(**stored))
        shown = are_there(served, worker.worker_id)
        assert [one["name"] for one in shown["runtimes"]] == ["b", "r"]
        assert shown["pulls"] == []
    worker.plane.close()


def are_there(served: Served, worker_id: str) -> dict[str, Any]:
    """Read every view that shows workers; gives that of one."""
    with served.http() as http:
        listed = http.get("/v1/workers")
        assert http.get("/v1/models").status_code == 200
        assert http.get("/metrics").status_code == 200
        assert http.get("/v1/batches").status_code == 200
    assert listed.status_code == 200
    found: dict[str, Any] = next(worker for worker in listed.json()["data"] if worker["id"] == worker_id)
    return found


TIMINGS = [
    {"renew_seconds": 10, "grace_seconds": 1e300, "toleration_seconds": 1e301},
    {"renew_seconds": 6, "grace_seconds": 6.01, "toleration_seconds": 60},
    {"renew_seconds": 10, "grace_seconds": 20, "toleration_seconds": 60},
    {"renew_seconds": 0.001, "grace_seconds": 20, "toleration_seconds": 60},
    {"renew_seconds": "nan", "grace_seconds": 50, "toleration_seconds": 300},
    {"renew_seconds": 10, "grace_seconds": "inf", "toleration_seconds": "inf"},
    {"renew_seconds": 10, "grace_seconds": 50, "toleration_seconds": HUGE},
]


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_pool_with_a_timing_out_of_bounds_is_refused(served: Served, timing: dict[str, Any]) -> None:
    with served.http() as http:
        answer = http.post("/v1/pools", json={"name": "theirs", "shared": False, "timing": timing})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")


def test_a_pool_that_was_stored_out_of_bounds_says_how_it_is_read(served: Served) -> None:
    with served.http() as http:
        ten = {"renew_seconds": 10, "grace_seconds": 30, "toleration_seconds": 60}
        assert http.post("/v1/pools", json={"name": "old", "timing": ten}).json()["out_of_bounds"] == {}
        set_rungs(served.yard, "old", renew_seconds=10.0, grace_seconds=20.0, toleration_seconds=60.0)
        (old,) = (pool for pool in http.get("/v1/pools").json()["data"] if pool["name"] == "old")
        assert old["timing"] == {"renew_seconds": 10, "grace_seconds": 25, "toleration_seconds": 60}
        assert old["out_of_bounds"] == {"grace_seconds": "20.0"}
        set_rungs(served.yard, "old", renew_seconds=10.0, grace_seconds=10.0**300, toleration_seconds=10.0**301)
        assert http.get("/v1/pools").status_code == 200
