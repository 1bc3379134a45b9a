"""`/v1/models`: what live workers serve, under every name that a row may give it."""

import openai
import pytest
from sqlmodel import col, update

from app.db.tables import Worker
from app.schemas.workers import RuntimeInfo
from tests.hands import Hands, hello
from tests.served import Served

NAMES = ("Qwen/Qwen3-8B", "hf.co/org/name:Q4_K_M", "/srv/models/a b.gguf", "x?y#z", "ünïcode", "100%25")


def hands(served: Served, name: str, *runtimes: RuntimeInfo, pool: str = "gpu") -> Hands:
    """A worker with these runtimes."""
    made = Hands(served, name, pool=pool)
    made.plane.register(hello(name, pool=pool).model_copy(update={"runtimes": list(runtimes)}))
    return made


def runtime(*models: str, kind: str = "vllm", alive: bool = True) -> RuntimeInfo:
    return RuntimeInfo(name=kind, kind=kind, alive=alive, models=list(models), endpoints=["/v1/chat/completions"])


def test_any_name_is_found_by_the_sdk_whatever_stands_in_it(served: Served) -> None:
    worker = hands(served, "gpu1", runtime(*NAMES))
    client = served.client()
    assert [model.id for model in client.models.list()] == sorted(NAMES)
    assert [client.models.retrieve(name).id for name in NAMES] == list(NAMES)
    with served.http() as http:
        assert http.get("/v1/models/Qwen/Qwen3-8B").json()["id"] == "Qwen/Qwen3-8B", "an id that nobody escaped"
    worker.close()


def test_on_ollama_a_model_answers_to_its_name_with_and_without_latest(served: Served) -> None:
    worker = hands(served, "gpu1", runtime("qwen3:latest", kind="ollama"), runtime("phi"))
    client = served.client()
    assert [client.models.retrieve(name).id for name in ("qwen3", "qwen3:latest", "phi")] == [
        "qwen3",
        "qwen3:latest",
        "phi",
    ]
    with pytest.raises(openai.NotFoundError, match="There are: phi, qwen3:latest"):
        client.models.retrieve("phi:latest")
    worker.close()


def test_a_model_of_several_pools_is_listed_once_with_all_of_them(served: Served) -> None:
    with served.http() as http:
        for pool in ("big", "cold"):
            assert http.post("/v1/pools", json={"name": pool}).status_code == 200
        found = [
            hands(served, "a", runtime("m", kind="ollama")),
            hands(served, "b", runtime("m"), pool="big"),
            hands(served, "c", runtime("m", alive=False), pool="cold"),
        ]
        (model,) = http.get("/v1/models").json()["data"]
        assert http.get("/v1/models/m").json() == model
    assert model["gpuyard_pools"] == ["big", "gpu"]
    assert model["owned_by"] == "ollama", "the oldest worker's word"
    for worker in found:
        worker.close()


def test_a_pools_own_grace_says_when_its_workers_are_silent(served: Served) -> None:
    timing = {"renew_seconds": 30, "grace_seconds": 120, "toleration_seconds": 600}
    with served.http() as http:
        assert http.post("/v1/pools", json={"name": "slow", "timing": timing}).status_code == 200
        quick = hands(served, "a", runtime("quick"))
        slow = hands(served, "b", runtime("slow"), pool="slow")
        with served.yard.store.begin() as session:
            session.execute(update(Worker).values(last_seen_at=col(Worker.last_seen_at) - 100_000))
        assert [model["id"] for model in http.get("/v1/models").json()["data"]] == ["slow"]
    quick.close()
    slow.close()


def test_models_in_pools_of_another_org_are_not_seen(served: Served) -> None:
    with served.http(served.key("admin", org="other")) as theirs, served.http() as http:
        assert theirs.post("/v1/pools", json={"name": "mine", "shared": False}).status_code == 200
        worker = hands(served, "a", runtime("shared-one"))
        assert [model["id"] for model in theirs.get("/v1/models").json()["data"]] == ["shared-one"]
        with served.yard.store.begin() as session:
            session.execute(update(Worker).values(pool="mine"))
        assert [model["id"] for model in theirs.get("/v1/models").json()["data"]] == ["shared-one"]
        assert http.get("/v1/models").json()["data"] == []
        assert http.get("/v1/models/shared-one").status_code == 404
    worker.close()
