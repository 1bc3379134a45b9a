"""One batch as its owner follows it, by the stock SDK."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
from openai import OpenAI
from openai.types import Batch

ENDED = {"completed", "failed", "cancelled", "expired"}
Lines = list[dict[str, Any]]
LOOK_SECONDS = 0.1
"""Each look costs a client and the API milliseconds that what is looked at needs itself."""


class Submitted:
    """A batch that was created."""

    def __init__(self, sdk: OpenAI, http: httpx.Client, batch_id: str) -> None:
        self._sdk = sdk
        self._http = http
        self.id = batch_id

    def now(self) -> Batch:
        """The batch as it stands."""
        return self._sdk.batches.retrieve(self.id)

    def inner(self) -> dict[str, Any]:
        """What only gpuyard says of it: inner state, workers on it, why it waits."""
        found: dict[str, Any] = self.now().gpuyard  # type: ignore[attr-defined]
        return found

    def until(self, condition: Callable[[Batch], object], what: str, *, seconds: float = 30) -> Batch:
        """Give the batch as it was when the condition held; fails when it does not within `seconds`."""
        end = time.monotonic() + seconds
        while not condition(batch := self.now()):
            assert time.monotonic() < end, f"not within {seconds:g} s: {what}: {batch}"
            time.sleep(LOOK_SECONDS)
        return batch

    def stored(self, rows: int, *, seconds: float = 30) -> Batch:
        """Wait until at least so many rows are stored."""

        def enough(batch: Batch) -> bool:
            counts = batch.request_counts
            return counts is not None and counts.completed + counts.failed >= rows

        return self.until(enough, f"{rows} rows are stored", seconds=seconds)

    def ended(self, status: str = "completed", *, seconds: float = 60) -> Batch:
        """Wait for its end, which must be this one."""
        batch = self.until(lambda found: found.status in ENDED, "the batch has ended", seconds=seconds)
        assert batch.status == status, batch
        return batch

    def cancel(self) -> Batch:
        return self._sdk.batches.cancel(self.id)

    def output(self) -> Lines:
        """The lines of the output file; none when there is no such file."""
        return [json.loads(line) for line in self.raw_output()]

    def errors(self) -> Lines:
        """The lines of the error file; none when there is no such file."""
        return [json.loads(line) for line in self.raw_errors()]

    def results(self) -> Lines:
        """The one file of all rows."""
        return [json.loads(line) for line in self.raw_results()]

    def raw_output(self) -> list[bytes]:
        """The lines of the output file as they are, damaged ones too."""
        return self._raw(self.now().output_file_id)

    def raw_errors(self) -> list[bytes]:
        """The same of the error file."""
        return self._raw(self.now().error_file_id)

    def raw_results(self) -> list[bytes]:
        """The same of the one file of all rows."""
        answer = self._http.get(f"/v1/batches/{self.id}/results")
        answer.raise_for_status()
        return answer.content.splitlines()

    def _raw(self, file_id: str | None) -> list[bytes]:
        return [] if file_id is None else self._sdk.files.content(file_id).content.splitlines()
