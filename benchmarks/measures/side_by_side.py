"""P2 and P3: the whole product beside what people use, over one file on one engine, round by round."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from benchmarks import rivals_run
from benchmarks.engine_process import engine
from benchmarks.inputs import input_file
from benchmarks.measures.saturation import MIDDLE
from benchmarks.product import Product
from benchmarks.rivals_run import Rival, run_rival
from benchmarks.runs import Run
from benchmarks.targets import Finding

OURS = "gpuyard"
_KEYS = {
    rivals_run.AIOHTTP_72.name: "aiohttp",
    rivals_run.OPENAI.name: "openai",
    rivals_run.LITELLM.name: "litellm",
    rivals_run.CELERY.name: "celery",
    rivals_run.HTTPX.name: "httpx",
}
_CPU = ("aiohttp", "openai", "celery")
Rounds = Mapping[str, Sequence[Run]]


def side_by_side(product: Product, *, rounds: int, rival_rounds: int, rows: int) -> dict[str, list[Run]]:
    """Run everybody in turn; the rivals that are far behind need one round to show it, the nearest one is in each."""
    found: dict[str, list[Run]] = defaultdict(list)
    nearest = (rivals_run.AIOHTTP_72,)
    with engine(MIDDLE) as running, product.gpu_worker("beside", running, prompts=MIDDLE.slots * 9 // 8) as pid:
        for number in range(rounds):
            clients: tuple[Rival, ...] = rivals_run.ALL if number < rival_rounds else nearest
            for rival in clients:
                found[rival.name].append(run_rival(rival, running, rows))
            ours = product.measure(OURS, {"worker": running}, {"worker": pid}, input_file(rows), rows)
            found[OURS].append(ours)
    return found


def compare(rounds: Rounds) -> list[Finding]:
    """Judge ratios within each round, so that what slows the machine slows both."""
    found = []
    for name, key in _KEYS.items():
        pairs = list(zip(rounds[OURS], rounds.get(name, ()), strict=False))
        if not pairs:
            continue
        speed = [ours.whole_share / theirs.whole_share for ours, theirs in pairs]
        found.append(Finding.of(f"P2.{key}", speed))
        if key in _CPU:
            cpu = [ours.cpu_us("worker") / theirs.cpu_us("client") for ours, theirs in pairs]
            found.append(Finding.of(f"P3.{key}", cpu))
    return found
