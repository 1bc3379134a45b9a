"""P11: a batch on four workers with an engine each, beside one. The engines are slow, so that two cores do not bind."""

from contextlib import ExitStack

from benchmarks.engine_process import Shape, engine
from benchmarks.inputs import input_file
from benchmarks.product import Product
from benchmarks.targets import Finding

SLOW = Shape(16, 200)
WORKERS = 4


def pools(product: Product, rows: int) -> list[Finding]:
    """Measure the rate inside one batch with as many rows a worker."""
    one, four = (_rate(product, workers, rows * workers) for workers in (1, WORKERS))
    return [Finding("P11", four / one, (one, four))]


def _rate(product: Product, workers: int, rows: int) -> float:
    pool = f"of-{workers}"
    product.ensure_pool(pool)
    with ExitStack() as stack:
        engines, pids = {}, {}
        for number in range(workers):
            name = f"{pool}-{number}"
            engines[name] = stack.enter_context(engine(SLOW))
            pids[name] = stack.enter_context(
                product.gpu_worker(name, engines[name], prompts=SLOW.slots * 9 // 8, pool=pool)
            )
        run = product.measure(pool, engines, pids, input_file(rows), rows, pool=pool)
    return rows / run.inside_seconds
