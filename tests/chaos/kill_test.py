"""The kill test from its first process to its last check."""

from contextlib import closing
from pathlib import Path

from tests.chaos import checks
from tests.chaos.books import Books
from tests.chaos.damage import Damage
from tests.chaos.fleet import Fleet
from tests.chaos.forms import PREFIX, WORKERS, Form
from tests.chaos.happening import Chaos, Run
from tests.chaos.report import Report
from tests.chaos.resources import left_over
from tests.chaos.schedule import schedule
from tests.chaos.stalls import Stalls
from tests.chaos.takeovers import Takeover, takeovers
from tests.e2e.rows import known, lines
from tests.e2e.submitted import Submitted
from tests.e2e.yard import Yard


def kill_test(form: Form, seed: int, folder: Path, *, database_url: str | None = None) -> Report:
    """Run it in `folder`. Raises DidNotEnd when the batch does not; all else the report says."""
    timing = {f"GPUYARD_{name.upper()}": f"{value:g}" for name, value in form.timing.items()}
    with Yard(folder, database_url=database_url, timing=timing, shard_rows=form.shard_rows) as yard:
        yard.start()
        fleet = Fleet(yard, form)
        fleet.start()
        books = Books(database_url or f"sqlite:///{yard.installation.data / 'gpuyard.db'}")
        try:
            batch = yard.submit(lines(known(PREFIX, number) for number in range(form.rows)))
            damage = Damage(yard, books, form, batch, seed=seed)
            chaos = Chaos(yard, fleet, books, form, schedule(form, seed), damage)
            with Stalls() as stalls, closing(damage):
                run = chaos.until_the_end(batch.id)
            found = [
                *checks.of_rows(batch, fleet, form, run),
                checks.of_schedule(run),
                *checks.of_losses(run, form),
                *checks.of_takeovers(taken_over := _takeovers(yard, run, batch, damage), form, stalls),
                *_of_damage(yard, damage),
                *checks.of_machine(stalls),
            ]
        finally:
            books.close()
            fleet.stop()
    exits = {name: machine.exits for name, machine in fleet.machines.items()}
    found += checks.of_processes(chaos.resources, left_over(folder), exits)
    return Report(form, seed, "postgresql" if database_url else "sqlite", run, found, taken_over)


def _of_damage(yard: Yard, damage: Damage) -> list[checks.Check]:
    """Nobody reads the whole batch's output file after this."""
    damage.whole_result()
    return checks.of_damage(damage, yard)


def _takeovers(yard: Yard, run: Run, batch: Submitted, damage: Damage) -> list[Takeover]:
    """The batch's events, its workers' and the service's own, laid beside what was done."""
    of_workers = {name: yard.events(yard.http.get(f"/v1/workers/{name}").json()["id"]) for name in WORKERS}
    absences = [event for event in yard.events("api") if event["type"] == "service.absence"]
    first = [e for one in damage.done for e in yard.events(one.batch.id) if e["type"] == "lease.granted"]
    return takeovers(run.happened, yard.events(batch.id), of_workers, absences, [event["at"] for event in first])
