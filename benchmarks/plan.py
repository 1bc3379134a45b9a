"""How much is measured: two minutes in CI, ten by hand, or as long as the targets' own words ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Rows and rounds. Ratios are taken within a round; what is told is their median."""

    name: str
    rounds: int
    validation_rounds: int
    rival_rounds: int  # of rivals that are far behind
    rows: int  # of the side-by-side runs
    saturation_rows: int
    saturation_rounds: int
    latency_batches: int
    operations_rows: int
    validation_rows: int
    pool_rows: int  # a worker; whole shards, or the last one is what is measured


QUICK = Plan("quick", 1, 0, 0, 4000, 8000, 1, 0, 0, 10_000, 0)
STANDARD = Plan("standard", 5, 3, 1, 8000, 16_000, 2, 200, 40_000, 50_000, 1024)
FULL = Plan("full", 5, 5, 5, 8000, 40_000, 5, 200, 40_000, 50_000, 3072)
TRIAL = Plan("trial", 1, 1, 1, 400, 800, 1, 5, 2000, 1000, 256)
"""Whether the bench itself works: its figures mean nothing."""
PLANS = {plan.name: plan for plan in (QUICK, STANDARD, FULL, TRIAL)}
