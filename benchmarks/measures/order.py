"""P5: what order costs when one row in a thousand takes a hundred times as long."""

from benchmarks.engine_process import Engine, Shape, engine
from benchmarks.inputs import input_file
from benchmarks.product import Product
from benchmarks.runs import Run
from benchmarks.targets import Finding

EVERY = 1000
TIMES = 100
PLAIN = Shape(64, 50)
STRAGGLING = Shape(64, 50, more=("--slow-every", str(EVERY), "--slow-ms", str(50 * TIMES)))
PART = 0.9
WINDOW_SECONDS = 0.25
SLOT_TIME = 1 - 1 / EVERY + TIMES / EVERY
"""A straggler holds its slot: the engine itself is that much slower, with any client."""


def order(product: Product, *, rounds: int, rows: int) -> list[Finding]:
    """Compare the rate until nine of ten rows are done: the last straggler's own time is nobody's cost."""
    rates, memory = [], []
    for number in range(rounds):
        plain, rate = _measured(product, PLAIN, f"plain-{number}", rows)
        slow, slow_rate = _measured(product, STRAGGLING, f"straggling-{number}", rows)
        rates.append(slow_rate * SLOT_TIME / rate)
        memory.append(slow.peak_mib["worker"] / plain.peak_mib["worker"])
    return [Finding.of("P5.rate", rates), Finding.of("P5.memory", memory)]


def _measured(product: Product, shape: Shape, name: str, rows: int) -> tuple[Run, float]:
    with engine(shape) as running, product.gpu_worker(name, running, prompts=shape.slots * 9 // 8) as pid:
        run = product.measure(name, {"worker": running}, {"worker": pid}, input_file(rows), rows)
        return run, rows * PART / _seconds_until(running, rows * PART)


def _seconds_until(running: Engine, rows: float) -> float:
    done = 0.0
    for number, (completed, _, _) in enumerate(running.timeline()):
        if done + completed >= rows:
            return (number + (rows - done) / completed) * WINDOW_SECONDS
        done += completed
    raise RuntimeError(f"the engine completed {done:g} rows of {rows:g}")
