"""Prometheus' own tool, given pages that were scraped: which alerts fire when they stay so?

A page is held for whole minutes, then the next one. What `promtool test rules` evaluates is what a server would.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.scraped import SYSTEM, Scraped

RULES = Path(__file__).parents[2] / "docs/operate/prometheus/alerts.yml"
VARIABLE = "GPUYARD_TEST_PROMTOOL"
_FIRING = 'group by (alertname) (ALERTS{alertstate="firing"})'


@dataclass(frozen=True)
class Held:
    """A page that stays so for some minutes. None: nobody answered."""

    page: Scraped | None
    minutes: int


def tool() -> str | None:
    """Where promtool is; None: nobody said so."""
    return os.environ.get(VARIABLE) or None


def check(promtool: str) -> str:
    """What promtool says of the rules; raises when they are none."""
    return subprocess.run([promtool, "check", "rules", str(RULES)], check=True, capture_output=True, text=True).stdout


def check_configuration(promtool: str, path: Path) -> str:
    """What promtool says of a server's configuration; the files it names need not be there."""
    asked = [promtool, "check", "config", "--syntax-only", str(path)]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


def check_queries(promtool: str, folder: Path, queries: Sequence[str]) -> str:
    """What promtool says of queries, each as the expression of a rule."""
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    path = folder / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    return subprocess.run([promtool, "check", "rules", str(path)], check=True, capture_output=True, text=True).stdout


def wrong(promtool: str, folder: Path, history: Sequence[Held], fired: set[str]) -> str:
    """Evaluate the rules at the end of the history; gives what promtool has against `fired`, or nothing."""
    minutes = sum(held.minutes for held in history)
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(fired)]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in _series(history).items()],
        "promql_expr_test": [{"expr": _FIRING, "eval_time": f"{minutes - 1}m", "exp_samples": expected}],
    }
    path = folder / "test.yml"
    # JSON is YAML, with nothing in it that a string could be taken for.
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    found = subprocess.run([promtool, "test", "rules", str(path)], check=False, capture_output=True, text=True)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def _series(history: Sequence[Held]) -> dict[str, str]:
    """Each series of the pages in promtool's notation: `3+0x9 stale _x4` is ten times 3, and then it is gone.

    A server marks what stands on a page no more as stale, at once.
    """
    pages = [(_named(held.page), held.minutes) for held in history]
    names = sorted({name for page, _ in pages for name in page})
    return {name: " ".join(_held(page.get(name), minutes) for page, minutes in pages) for name in names}


def _held(value: float | None, minutes: int) -> str:
    if value is None:
        return f"stale _x{minutes - 1}" if minutes > 1 else "stale"
    return f"{value:.9f}+0x{minutes - 1}" if minutes > 1 else f"{value:.9f}"


def _named(page: Scraped | None) -> dict[str, float]:
    if page is None:
        return {}
    return {
        _name(name, labels): value
        for name, labels, value in page.samples
        if not name.startswith(SYSTEM) and not name.endswith("_created")
    }


def _name(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted((labels | {"instance": "api:8765"}).items()))
    return f"{name}{{{inner}}}"
