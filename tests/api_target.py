"""An API process in which there is something of everything: what the tests of bad input aim at."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import pytest
import requests
from hypothesis import HealthCheck, Phase, settings

from app.domain.workers import Transport
from app.schemas.claims import ClaimRequest
from app.schemas.tokens import NewToken
from app.services import control, workers
from app.services.context import Caller, Yard
from app.services.opening import open_yard
from config.settings import ServerSettings
from tests.api_process import ApiProcess, api_process
from tests.databases import PostgresDatabases, SqliteDatabases
from tests.hands import hello
from tests.migrated import migrate
from tests.served import ADMIN_KEY, rows


def bounded(examples: int) -> settings:
    """The same so many examples in every run; one that fails is made small."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@dataclass
class Target:
    """`keys` by scope, and `ids` that exist, by the argument that they fit."""

    api: ApiProcess
    kind: str
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)
    session: requests.Session = field(default_factory=requests.Session)

    def http(self, key: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.keys[key]}"}
        return httpx.Client(base_url=self.api.url, headers=headers, timeout=30)

    def fill(self, yard: Yard) -> None:
        """Make keys, a file, a batch that is validated, and a worker that holds a lease of it."""
        self.keys = {"admin": ADMIN_KEY, "nobody": "gk-nobody"}
        with self.http("admin") as http:
            for scope in ("submit", "read", "worker"):
                wanted = NewToken.model_validate({"name": scope, "scopes": [scope]})
                self.keys[scope] = http.post("/v1/tokens", json=wanted.model_dump()).json()["secret"]
            file = http.post("/v1/files", files={"file": ("in.jsonl", rows(3))}, data={"purpose": "batch"}).json()
            asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": file["id"]}
            batch = http.post("/v1/batches", json=asked).json()
        validate(yard)
        word = hello()
        with self.http("worker") as http:
            worker = http.post("/workers/register", json=word.model_dump(mode="json")).json()
            claim = ClaimRequest(
                worker_id=worker["worker_id"], boot_id=word.boot_id, request_id=uuid4().hex, want_rows=9
            )
            granted = http.post("/workers/claim", json=claim.model_dump(mode="json")).json()
        self.ids = {
            "file_id": file["id"],
            "input_file_id": file["id"],
            "batch_id": batch["id"],
            "after": batch["id"],
            "subject": batch["id"],
            "worker_id": worker["worker_id"],
            "boot_id": word.boot_id,
            "lease_id": granted["grants"][0]["lease_id"],
            "leases": [granted["grants"][0]["lease_id"]],
            "name": "gpu",
            "pool": "gpu",
            "model_id": "m",
        }


def validate(yard: Yard) -> None:
    """Do what a control worker does."""
    with yard.store.read() as session:
        org_id = session.connection().exec_driver_sql("SELECT org_id FROM batch").scalar_one()
    caller = Caller(org_id, None, "control@test", frozenset({"worker"}), operator=True)
    word = hello("control-test").model_copy(update={"pool": control.QUEUE, "transport": Transport.CONTROL})
    worker_id = workers.register(yard, caller, word).worker_id
    while (grant := control.claim_control(yard, worker_id, uuid4().hex)) is not None:
        control.perform(yard, grant)


ON_SQLITE_LATER = pytest.mark.parametrize(
    "target",
    [pytest.param("sqlite", marks=pytest.mark.long), pytest.param("postgres", marks=pytest.mark.postgres)],
    indirect=True,
)
"""For what hardly reaches the database: PostgreSQL, which takes fewer characters, by default."""


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Started once for a module's tests and each database; whatever they send, its log shows no traceback."""
    folder = tmp_path_factory.mktemp("api")
    databases = (
        SqliteDatabases(folder, {}, folder)
        if request.param == "sqlite"
        else PostgresDatabases(request.getfixturevalue("postgres_cluster"), {})
    )
    url = databases.copy_of(migrate)
    with api_process(url, folder) as running:
        yard = open_yard(ServerSettings(database_url=url, data_dir=folder / "data"))
        made = Target(running, kind=request.param)
        made.fill(yard)
        yard.store.close()
        yield made
        made.session.close()
        log = running.log.read_text(errors="replace")
        assert "Traceback" not in log, log[-4000:]
