"""A batch far above the usual limit, by the stock SDK from upload to download: what each part takes, and of what."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine_process import Shape, engine
from benchmarks.inputs import check_output, input_file
from benchmarks.product import Product

FAST = Shape(64, 5)
SETTINGS = {"max_rows": 1_000_000, "max_file_bytes": 4 * 1024**3}
"""What an operator raises; docs/operate/large-batches.md says the same."""
MIB = 1024**2


@dataclass(frozen=True)
class Million:
    """Seconds of the wall and MiB. `run_seconds`: first row at the engine to its last."""

    rows: int
    upload_seconds: float
    validate_seconds: float
    run_seconds: float
    finalize_seconds: float
    download_seconds: float
    end_to_end_seconds: float
    rows_per_second: float
    peak_mib: dict[str, float]
    cpu_seconds: dict[str, float]
    input_mib: float
    output_mib: float
    blobs_mib: float
    database_mib: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def million(product: Product, folder: Path, rows: int) -> Million:
    """Run one batch of so many rows of 1 KiB, and check every line of the file that the SDK downloads."""
    source = input_file(rows)
    with engine(FAST) as running, product.gpu_worker("million", running) as pid:
        run = product.measure("million", {"worker": running}, {"worker": pid}, source, rows)
    batch = product.sdk.batches.retrieve(run.more["batch"])
    target = folder / "output.jsonl"
    began = time.monotonic()
    with product.sdk.files.with_streaming_response.content(batch.output_file_id or "") as answer:
        answer.stream_to_file(target)
    download_seconds = time.monotonic() - began
    with target.open("rb") as lines:
        check_output(lines, rows, ordered=True)
    moments = {event["type"]: float(event["at"]) for event in product.events(batch.id)}
    created = moments["batch.created"]
    data = product.installation.data
    return Million(
        rows=rows,
        upload_seconds=run.end_to_end_seconds - (moments["batch.completed"] - created),
        validate_seconds=first(product.events(batch.id), "batch.validated") - created,
        run_seconds=run.inside_seconds,
        finalize_seconds=moments["batch.completed"] - moments["batch.finalizing"],
        download_seconds=download_seconds,
        end_to_end_seconds=run.end_to_end_seconds,
        rows_per_second=rows / run.inside_seconds,
        peak_mib=run.peak_mib,
        cpu_seconds=run.cpu_seconds,
        input_mib=source.stat().st_size / MIB,
        output_mib=target.stat().st_size / MIB,
        blobs_mib=sum(sizes(data / "blobs")) / MIB,
        database_mib=sum(path.stat().st_size for path in data.glob("gpuyard.db*")) / MIB,
    )


def first(events: list[dict[str, Any]], kind: str) -> float:
    """When an event came first."""
    return next(float(event["at"]) for event in events if event["type"] == kind)


def sizes(folder: Path) -> Iterator[int]:
    """The sizes of all files below a folder."""
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())
