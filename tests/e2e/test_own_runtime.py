"""A third party's executor, named in a setting, runs a batch: nothing of ours is edited (AR-04)."""

import pytest

from tests.e2e.rows import lines, row
from tests.e2e.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

ACME = """
import json

from app.domain.rows import Reply
from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.base import BaseExecutor


class AcmeExecutor(BaseExecutor):
    kind = "acme"
    default_url = "acme://here"

    def probe(self):
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=True,
            models=(ServedModel("mock"),),
            endpoints=("/v1/chat/completions",),
        )

    def execute(self, row, *, timeout, cancelled):
        message = {"role": "assistant", "content": f"acme says {row.custom_id}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return Reply(status=200, body=json.dumps({"choices": [choice]}).encode(), request_id="acme-1")

    def close(self):
        pass
"""


@pytest.mark.long
def test_a_class_of_another_module_runs_a_batch(shared_yard: Yard) -> None:
    (shared_yard.folder / "acme_runtime.py").write_text(ACME)
    shared_yard.http.post("/v1/pools", json={"name": "acme"}).raise_for_status()
    shared_yard.worker("acme1", pool="acme", runtime="acme_runtime:AcmeExecutor", runtime_url="")
    shared_yard.until_present("acme1")
    batch = shared_yard.submit(lines([row("own", number) for number in range(5)]), pool="acme")
    batch.ended()
    said = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in batch.output()}
    assert said == {custom_id: f"acme says {custom_id}" for custom_id in said}
    assert len(said) == 5
