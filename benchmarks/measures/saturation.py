"""P1: with an eighth more in flight than the engine has slots. P4: with nothing told."""

from collections.abc import Mapping

from benchmarks.engine_process import Shape, engine
from benchmarks.inputs import input_file
from benchmarks.product import Product
from benchmarks.runs import Run
from benchmarks.targets import Finding

SMALL = Shape(8, 100)
MIDDLE = Shape(64, 50)
LARGE = Shape(256, 200)
RAMP_SECONDS = 5.0
WINDOWS_A_SECOND = 4
Shapes = Mapping[str, Shape]


def told(product: Product, shape: Shape, *, rounds: int, rows: int) -> list[Run]:
    """Run a file several times on one worker with 1.125 x slots in flight."""
    with (
        engine(shape) as running,
        product.gpu_worker(f"told-{shape.slots}", running, prompts=shape.slots * 9 // 8) as pid,
    ):
        name = f"gpuyard, {shape.slots * 9 // 8} in flight on {shape}"
        return [
            product.measure(name, {"worker": running}, {"worker": pid}, input_file(rows), rows) for _ in range(rounds)
        ]


def saturation(product: Product, *, rounds: int, rows: int, shapes: Shapes | None = None) -> list[Finding]:
    """Measure P1."""
    found = []
    for key, shape in (shapes or {"P1.64": MIDDLE, "P1.256": LARGE}).items():
        shares = [run.share for run in told(product, shape, rounds=rounds, rows=rows)]
        found.append(Finding.of(key, shares))
    return found


def untold(product: Product, shape: Shape, number: int, rows: int) -> tuple[Run, float]:
    """Run a file on a fresh worker that finds its number itself; gives the most that waited after the ramp, x slots."""
    with engine(shape) as running, product.gpu_worker(f"auto-{shape.slots}-{number}", running) as pid:
        run = product.measure(f"gpuyard, auto on {shape}", {"worker": running}, {"worker": pid}, input_file(rows), rows)
        after = running.timeline()[int(RAMP_SECONDS * WINDOWS_A_SECOND) :]
        return run, max((waiting for _, _, waiting in after), default=0) / shape.slots


def auto(product: Product, *, rounds: int, rows: int, shapes: Shapes | None = None) -> list[Finding]:
    """Measure P4. The ramp counts: it is what a user sees of it."""
    found, queues = [], []
    for key, shape in (shapes or {"P4.64": MIDDLE, "P4.256": LARGE, "P4.8": SMALL}).items():
        # The small engine does a sixteenth of the others' rate.
        own_rows = max(100, rows // 16) if shape is SMALL else rows
        runs = [untold(product, shape, number, own_rows) for number in range(rounds)]
        shares = [run.share for run, _ in runs]
        queues += [queue for _, queue in runs]
        found.append(Finding.of(key, shares))
    return [*found, Finding("P4.queue", max(queues), tuple(queues))]
