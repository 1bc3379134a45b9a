"""When what fails: made from a seed, so that a run can be had again.

A moment is a number of stored rows, not a second: a fault meets the batch at the same point on a fast and a slow
machine, and none comes after the end. What the processes are at in that instant is chance, and meant to be.
"""

import random
from dataclasses import dataclass

from tests.chaos.forms import GATEWAYS, WORKERS, Form, Kind

FIRST, LAST = 0.04, 0.9
"""Shares of the rows between which faults fall."""


@dataclass(frozen=True)
class Fault:
    """`target`: a worker's name (for a gateway, that of its engine's), a part of `gpuyard up`, or a content.

    `pause_seconds` is how long it stays as it is.
    """

    at_rows: int
    kind: Kind
    target: str
    pause_seconds: float


def schedule(form: Form, seed: int) -> list[Fault]:
    """Give the faults of a run, by the rows at which they fall.

    Faults of workers are spread evenly, each at a random moment of its own stretch: with all of them at once there
    would be no worker left, and nothing to see. Faults of parts and contents fall anywhere, upon each other too.
    """
    chance = random.Random(seed)
    faults: list[Fault] = []
    of_workers = [kind for kind, count in form.worker_faults.items() for _ in range(count)]
    chance.shuffle(of_workers)
    # What stays away for longest comes early enough to be back before the end.
    of_workers.sort(key=lambda kind: kind in {Kind.RESTART, Kind.DRAIN} and chance.random() < 0.5)
    targets: list[str] = []
    while len(targets) < len(of_workers):
        targets += chance.sample(WORKERS, len(WORKERS))
    stretch = (LAST - FIRST) / len(of_workers)
    for number, (kind, target) in enumerate(zip(of_workers, targets, strict=False)):
        moment = FIRST + stretch * (number + chance.random())
        faults.append(Fault(int(moment * form.rows), kind, target, _pause(form, kind, chance)))
    for (part, kind), count in form.part_faults.items():
        for _ in range(count):
            moment = chance.uniform(FIRST, LAST)
            target = chance.choice(WORKERS) if kind in GATEWAYS or kind is Kind.THREADS else part
            faults.append(Fault(int(moment * form.rows), kind, target, _pause(form, kind, chance)))
    return sorted(faults, key=lambda fault: fault.at_rows)


def _pause(form: Form, kind: Kind, chance: random.Random) -> float:
    if kind in {Kind.DEATH, Kind.FREEZE}:
        return form.away_seconds
    if kind in {Kind.PAUSE, Kind.THREADS}:
        return round(chance.uniform(4, 10), 1)
    if kind in GATEWAYS:
        return round(chance.uniform(1, 3), 1)
    return round(chance.uniform(0, 1.5), 1) if kind in {Kind.RESTART, Kind.DRAIN} else 0.0
