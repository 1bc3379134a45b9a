"""A pool whose workers do not take the same parameters, through the SDK and the wire (R-23)."""

from openai import OpenAI

from tests.served import Served, rows
from tests.worker.refusing import Refusing
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit_content

__all__ = ["sdk", "served", "start_worker"]


def biased(count: int) -> bytes:
    """Rows that ask for a parameter which not every runtime takes."""
    return rows(count, "fake").replace(b'"body": {', b'"body": {"logit_bias": {"1": 2}, ')


def test_in_a_mixed_pool_rows_run_only_where_their_parameters_are_taken(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    picky, taking = Refusing("logit_bias"), Refusing("n")
    start_worker("picky", picky)
    start_worker("taking", taking)
    batch = ended(sdk, served, submit_content(sdk, served, biased(24)).id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed) == ("completed", 24)
    assert (len(picky.started), sorted(taking.started)) == (0, list(range(24)))


def test_what_is_dropped_is_told_in_each_row_and_the_sdk_reads_on(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    picky = Refusing("logit_bias")
    start_worker("picky", picky)
    failed = ended(sdk, served, submit_content(sdk, served, biased(2)).id)
    assert (failed.status, failed.errors and failed.errors.data and failed.errors.data[0].code) == (
        "failed",
        "unsupported_parameter",
    )
    mixed = biased(2) + rows(3, "fake").splitlines(keepends=True)[2]
    batch = ended(sdk, served, submit_content(sdk, served, mixed, unsupported_parameters="drop").id)
    lines = content(sdk, batch.output_file_id)
    assert [line["response"].get("gpuyard") for line in lines] == [
        {"dropped_parameters": ["logit_bias"]},
        {"dropped_parameters": ["logit_bias"]},
        None,
    ]
    assert all(b"logit_bias" not in body and b'"messages"' in body for body in picky.bodies)
