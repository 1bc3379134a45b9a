"""Every route of workers, asked about a worker or a lease that is not the caller's: refused or stale, and no effect."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlmodel import select

from app.api.access import ACCESS
from app.db.tables import Batch, Job, Lease, Worker
from app.domain.workers import Transport
from app.schemas.claims import ReleaseRequest
from app.schemas.pools import NewPool
from app.services import control, leases, pools, tokens, workers
from app.services.context import Caller
from tests.hands import Hands, do_control_work, hello
from tests.served import Served, rows

ROUTES = {route.removeprefix("POST ") for route in ACCESS if route.startswith("POST /workers/")}
END = {"request_id": "end"}


def message(route: str, who: "Who", lease: int, batch_id: str = "batch_none") -> dict[str, Any]:
    """What a worker would send there of that lease."""
    ids = {"worker_id": who.id}
    boot = {"boot_id": who.boot_id}
    hand_in = ids | {"batch_id": batch_id, "ends": [END | {"lease_id": lease}]}
    found: dict[str, dict[str, Any]] = {
        "/workers/register": hello(who.name).model_dump(mode="json") | {"held": [lease]},
        "/workers/{worker_id}/heartbeat": boot | {"phase": "ready", "leases": [lease], "unstarted": [lease]},
        "/workers/{worker_id}/bye": boot | {"reason": "signal", "spooled": [lease]},
        "/workers/poll": ids | boot | {"wait_seconds": 0},
        "/workers/claim": ids | boot | {"request_id": who.claim_request},
        "/workers/start-row": ids | boot | {"lease_id": lease, "row": 0},
        "/workers/release": ids | {"leases": [lease]},
        "/workers/report-failure": ids | {"lease_id": lease, "request_id": "r", "error": "no"},
        "/workers/progress": ids | {"batch_id": batch_id, "completed": 1, "failed": 0},
        "/workers/model-progress": ids
        | boot
        | {"number": 1, "runtime": "r", "model": "m", "status": "pulling", "completed": 0, "total": 0, "error": ""},
        "/workers/results": hand_in,
        "/workers/upload-results": hand_in,
    }
    assert found.keys() == ROUTES, "a route of workers that nobody asks about another's worker"
    return found[route]


class Who:
    """A worker that a call is about, and a batch and a live lease of it."""

    def __init__(self, id_: str, name: str, boot_id: str, batch_id: str, lease: int, claim_request: str) -> None:
        self.id, self.name, self.boot_id = id_, name, boot_id
        self.batch_id, self.lease, self.claim_request = batch_id, lease, claim_request


class Scene:
    """The caller's worker `mine`; others that it may not act for; `ended`, a lease of its own that has ended."""

    def __init__(self, served: Served, stack: ExitStack) -> None:
        self.served = served
        with served.client(served.key("submit")) as sdk:
            self.batch_id = self._submit(sdk)
            do_control_work(served)
            self._beside = Hands(served, "beside")
            stack.callback(self._beside.close)
            self.beside = self._holder("beside", self._beside)
            mine = Hands(served, "mine")
            stack.callback(mine.close)
            self.mine = self._holder("mine", mine)
            self.ended = self.mine.lease
            mine.plane.release(ReleaseRequest(worker_id=self.mine.id, leases=[self.mine.lease]))
            self.control = self._controller(self._submit(sdk))
        self.theirs = self._stranger(stack)

    def _submit(self, sdk: Any) -> str:
        file = sdk.files.create(file=("in.jsonl", rows(600)), purpose="batch")
        made = sdk.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", extra_body={}
        )
        return str(made.id)

    def _holder(self, name: str, hands: Hands) -> Who:
        batch_id, grants, _ = hands.claim(want_rows=1)
        with self.served.yard.store.read() as session:
            lease = session.get_one(Lease, grants[0].lease_id)
        return Who(hands.worker_id, name, hands.boot_id, batch_id, grants[0].lease_id, lease.claim_request)

    def _controller(self, batch_id: str) -> Who:
        """A control worker that validates."""
        yard = self.served.yard
        caller = Caller(self.served.operator().org_id, None, "control@test", frozenset({"worker"}), operator=True)
        word = hello("control-1").model_copy(update={"pool": control.QUEUE, "transport": Transport.CONTROL})
        worker_id = workers.register(yard, caller, word).worker_id
        grant = control.claim_control(yard, worker_id, "control-claim")
        assert grant is not None
        assert grant.batch_id == batch_id
        return Who(worker_id, word.name, word.boot_id, batch_id, grant.lease_id, "control-claim")

    def _stranger(self, stack: ExitStack) -> Who:
        """A worker of another org, in a pool of its own."""
        key = self.served.key("admin", "worker", org="other")
        caller = tokens.authenticate(self.served.yard, key)
        pools.create(self.served.yard, caller, NewPool(name="theirs", shared=False))
        http = stack.enter_context(self.served.http(key))
        word = hello("theirs", pool="theirs")
        found = http.post("/workers/register", json=word.model_dump(mode="json")).json()
        return Who(found["worker_id"], word.name, word.boot_id, "batch_none", 10**6, "none")

    def stored(self) -> str:
        """Everything that a call might change, but for the caller's own worker."""
        with self.served.yard.store.read() as session:
            found = [
                *session.exec(select(Worker).where(Worker.id != self.mine.id).order_by("id")),
                *session.exec(select(Lease).order_by("id")),
                *session.exec(select(Job).order_by("id")),
                *session.exec(select(Batch).order_by("id")),
            ]
            return "\n".join(each.model_dump_json() for each in found)


@pytest.fixture
def scene(served: Served) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(served, stack)


def call(http: httpx.Client, route: str, who: Who, lease: int, batch_id: str = "batch_none") -> httpx.Response:
    path = route.format(worker_id=who.id)
    headers = {"x-gpuyard-boot-id": who.boot_id}
    sent = message(route, who, lease, batch_id)
    if "results" in route:
        return http.post(path, content=json.dumps(sent).encode() + b"\n", headers=headers)
    return http.post(path, json=sent, headers=headers)


@pytest.mark.parametrize("single", [False, True], ids=["a-key-of-the-org", "a-key-of-one-worker"])
def test_nobody_acts_for_a_worker_that_is_not_its_own(scene: Scene, single: bool) -> None:
    """For control workers no key does, and for other workers of the org no single-worker key."""
    served = scene.served
    key = served.key("worker", name="mine", single_worker=single)
    others = [scene.theirs, scene.control] + [scene.beside] * single
    before = scene.stored()
    with served.http(key) as http:
        for who in others:
            for route in sorted(ROUTES - {"/workers/register"}):
                answer = call(http, route, who, who.lease, who.batch_id)
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_worker"), (route, who.name)
                assert scene.stored() == before, (route, who.name)


@pytest.mark.parametrize("single", [False, True], ids=["a-key-of-the-org", "a-key-of-one-worker"])
def test_nobody_ends_or_renews_a_lease_that_is_not_its_own(scene: Scene, single: bool) -> None:
    served = scene.served
    before = scene.stored()
    leases_of = {
        scene.beside.lease: scene.beside.batch_id,
        scene.control.lease: scene.control.batch_id,
        scene.ended: scene.mine.batch_id,
        10**6: scene.mine.batch_id,
    }
    last = ["/workers/{worker_id}/bye"]
    about_leases = [route for route in sorted(ROUTES) if message(route, scene.mine, 1) != message(route, scene.mine, 2)]
    with served.http(served.key("worker", name="mine", single_worker=single)) as http:
        for route in [*(route for route in about_leases if route not in last), *last]:
            for lease, batch_id in leases_of.items():
                answer = call(http, route, scene.mine, lease, batch_id)
                if route in last:
                    assert answer.status_code == 204, answer.text
                else:
                    assert answer.status_code == 200, (route, answer.text)
                    assert said_of(answer.json(), lease) == {"stale"}, (route, answer.text)
                assert scene.stored() == before, (route, lease)


def said_of(answer: dict[str, Any], lease: int) -> set[str]:
    """The verdicts of an answer, wherever its route puts them."""
    if "verdict" in answer:
        return {answer["verdict"]}
    return {answer[part][str(lease)] for part in ("leases", "parts", "ends") if str(lease) in answer.get(part, {})}


@pytest.mark.parametrize("single", [False, True], ids=["a-key-of-the-org", "a-key-of-one-worker"])
def test_nobody_fetches_input_that_its_workers_hold_nothing_of(scene: Scene, single: bool) -> None:
    """A key of the org fetches what any worker of the org holds; its right to read files counts for nothing here."""
    served = scene.served
    others = {route for route in ACCESS if " /workers/" in route} - {f"POST {route}" for route in ROUTES}
    assert others == {"GET /workers/input/{file_id}"}, "a route of workers that nobody asks about another's worker"
    with served.yard.store.read() as session:
        of_batch = {batch.id: batch.input_file_id for batch in session.exec(select(Batch))}
    held, unheld = of_batch[scene.beside.batch_id], of_batch[scene.control.batch_id]
    mine, theirs = served.key("worker", name="mine", single_worker=single), served.key("worker", org="other")
    for key, file_id, status in [
        (mine, held, 404 if single else 200),
        (mine, unheld, 404),
        (served.key("worker", name="beside", single_worker=single), held, 200),
        (served.key("admin", "worker"), unheld, 404),
        (theirs, held, 404),
    ]:
        with served.http(key) as http:
            assert http.get(f"/workers/input/{file_id}").status_code == status


def test_a_claim_by_the_request_of_anothers_brings_nothing_of_it(scene: Scene) -> None:
    served = scene.served
    with served.http(served.key("worker")) as http:
        for who in (scene.beside, scene.control):
            mine = Who(scene.mine.id, "mine", scene.mine.boot_id, "", 0, who.claim_request)
            granted = call(http, "/workers/claim", mine, 0).json()["grants"]
            assert who.lease not in [grant["lease_id"] for grant in granted]


def test_no_hello_takes_the_name_of_a_control_worker_also_when_it_has_left(scene: Scene) -> None:
    """It would have its row, and with `held` its leases, too."""
    served, who = scene.served, scene.control
    before = scene.stored()
    with served.http(served.key("worker")) as http:
        for _ in range(2):
            answer = call(http, "/workers/register", who, who.lease)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "name_taken")
            assert "--name" in answer.json()["error"]["message"]
            assert scene.stored() == before
            served.shift(seconds=10_000)  # nobody has heard of it for long


def test_a_control_worker_takes_no_name_of_a_gpu_worker(scene: Scene) -> None:
    """It then calls itself otherwise (app.control.beats)."""
    yard = scene.served.yard
    caller = Caller(scene.served.operator().org_id, None, "control@test", frozenset({"worker"}), operator=True)
    word = hello("beside").model_copy(update={"pool": control.QUEUE, "transport": Transport.CONTROL})
    before = scene.stored()
    scene.served.shift(seconds=10_000)
    with pytest.raises(Exception, match="is taken by a worker with transport http"):
        workers.register(yard, caller, word)
    assert scene.stored() == before


def test_no_key_reads_the_input_of_another_org_while_the_service_validates_it(scene: Scene) -> None:
    """A control worker is of the operator's org, and holds a lease of whatever batch it validates."""
    served = scene.served
    with served.client(served.key("submit", org="other")) as sdk:
        file = sdk.files.create(file=("in.jsonl", rows(2)), purpose="batch")
        sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    assert control.claim_control(served.yard, scene.control.id, uuid4().hex) is not None
    caller = tokens.authenticate(served.yard, served.key("worker"))
    assert not leases.may_read(served.yard, caller, file.id)
