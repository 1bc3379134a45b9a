"""`python -m tests.chaos full|quick [--seed N]`: run the kill test, say what it found, exit 1 when a check fails."""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.forms import FORMS
from tests.chaos.kill_test import kill_test
from tests.cluster import Cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--seed", type=int, help="repeat the schedule of an earlier run; else one is drawn")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/operate/faults.md")
    asked = parser.parse_args()
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    print(f"chaos {asked.form}, seed {seed}", flush=True)  # noqa: T201 - a command's own words
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    with database(asked.database) as url:
        report = kill_test(FORMS[asked.form], seed, folder, database_url=url)
    print(report.text())  # noqa: T201 - a command's own words
    print(f"written to {report.save()}; logs in {folder}")  # noqa: T201 - a command's own words
    if asked.write:
        report.write_page()
    return 1 if report.failed else 0


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
