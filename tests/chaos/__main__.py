"""`python -m tests.chaos full|quick`: run the kill test, say what it found, exit 1 when a check fails.

`--times 10` runs it ten times with ten seeds, one line a run, and stops at the first run that fails.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.forms import FORMS, Form
from tests.chaos.happening import DidNotEnd
from tests.chaos.kill_test import kill_test
from tests.chaos.report import Report
from tests.cluster import Cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--seed", type=int, help="repeat the schedule of an earlier run; else one is drawn")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--times", type=int, default=1, help="so many runs in a row, each with the next seed")
    parser.add_argument("--write", action="store_true", help="put the last run's figures into docs/operate/faults.md")
    asked = parser.parse_args()
    first = random.randrange(1_000_000) if asked.seed is None else asked.seed
    for number in range(asked.times):
        run = f"run {number + 1} of {asked.times}: chaos {asked.form}, seed {first + number}, {asked.database}"
        say(run)
        try:
            report = one_run(FORMS[asked.form], first + number, asked.database)
        except DidNotEnd as error:
            say(f"FAILED {run}: {error}")
            return 1
        say(report.text() if asked.times == 1 or report.failed else report.line())
        if report.failed:
            say(f"FAILED {run}: {len(report.failed)} of {len(report.checks)} checks")
            return 1
    say(f"passed: {asked.times} of {asked.times}, seeds {first} to {first + asked.times - 1}, {asked.database}")
    if asked.write:
        report.write_page()
    return 0


def one_run(form: Form, seed: int, kind: str) -> Report:
    """Run it, in a folder that stays, and keep its figures below `.chaos`."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    with database(kind) as url:
        report = kill_test(form, seed, folder, database_url=url)
    say(f"written to {report.save()}; logs in {folder}")
    return report


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command's own words


@contextmanager
def database(kind: str) -> Iterator[str | None]:
    """A PostgreSQL of this run's own, or None for the yard's SQLite file."""
    if kind == "sqlite":
        yield None
        return
    cluster = Cluster()
    try:
        yield cluster.url(cluster.create())
    finally:
        cluster.stop()


if __name__ == "__main__":
    sys.exit(main())
