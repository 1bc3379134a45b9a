"""P6: the most memory of API, control worker and GPU worker, from upload to finalize: 1,000,000 rows beside 10,000."""

from benchmarks.engine_process import Shape, engine
from benchmarks.inputs import input_file
from benchmarks.product import Product
from benchmarks.runs import Run
from benchmarks.targets import Finding

ENGINE = Shape(64, 50)
"""A worker has two seconds' rows in hand. Behind an engine without a limit a long batch gets faster, and has more."""
SMALL = 10_000
PARTS = ("worker", "control", "api")


def memory(product: Product, rows: int) -> tuple[list[Finding], list[Run]]:
    """Run the small one twice first: what an allocator keeps after a first batch is no growth by the batch's size."""
    with engine(ENGINE) as running, product.gpu_worker("memory", running, prompts=ENGINE.slots) as pid:
        runs = [
            product.measure(f"{count} rows", {"worker": running}, {"worker": pid}, input_file(count), count)
            for count in (SMALL, SMALL, rows)
        ]
    _, small, large = runs
    findings = [Finding(f"P6.{part}", large.peak_mib[part] / small.peak_mib[part]) for part in PARTS]
    return findings, [small, large]
