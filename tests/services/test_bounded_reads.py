"""PROTOCOL 7: whatever workers and users ask, no statement looks at all workers, jobs, leases or batches."""

import re
from pathlib import Path
from typing import Any

from sqlalchemy import event

from app.db import metrics as metrics_sql
from app.db.store import Store
from app.domain.polls import Told
from app.domain.workers import Phase
from app.schemas.polls import Poll
from app.services import batches, polls
from app.services.context import Yard
from app.sweeps import batch_expiry, lease_expiry, requeue
from tests.databases import Databases
from tests.migrated import migrate
from tests.yards import USER, cancel, later, lease, machine, new_yard, validated

WHOLE_TABLE = re.compile(r"(?:\bSCAN|Seq Scan on) (?:batch|job|lease|worker|segment|event|file|blob)\b.*")
OF_FEW = {
    "SCAN job USING INDEX ix_job_cautious",
    "SCAN lease USING INDEX ix_lease_expiry",
    "SCAN lease USING INDEX ix_lease_stopping",
}
"""Whole indexes that hold little: of leases those that live."""


def calls(yard: Yard) -> None:
    """What is asked all day."""
    one, two = machine(yard, "one", slots=3), machine(yard, "two")
    batch_id = validated(yard, rows=24)
    validated(yard, rows=8, group="others")
    two.claim(want=1)
    (first,) = one.claim(want=1).grants
    one.beat(first.lease_id)
    of_first = lease(yard, first.lease_id).batch_id
    one.hand_in(of_first, {first.lease_id: [first.first_row]})
    one.start_row(first.lease_id, first.first_row + 1)
    one.release(first.lease_id)
    second, third, *_ = one.claim(want=100, running=of_first).grants
    one.fail(second.lease_id)
    one.finish(of_first, third)
    poll = Poll(worker_id=two.id, boot_id=two.boot_id, phase=Phase.READY, free=1)
    polls.note(yard, two.caller, poll)
    assert polls.look(yard, two.caller, poll, Told()) is not None
    batches.retrieve(yard, USER, batch_id)
    batches.listed(yard, USER)
    polls.whats_new(yard, ["gpu"])
    with yard.store.read() as session:
        metrics_sql.leases(session, yard.store.now(session))
    later(yard, 60)
    two.beat()
    cancel(yard, batch_id)
    one.restarted().hello()
    two.bye()
    for sweep in (batch_expiry, lease_expiry, requeue):
        sweep.run_once(yard, 100)


def test_no_statement_of_a_call_reads_a_whole_table(databases: Databases, tmp_path: Path) -> None:
    yard = new_yard(Store(databases.copy_of(migrate)), tmp_path / "blobs")
    asked: dict[str, Any] = {}

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            asked.setdefault(statement, parameters[0] if isinstance(parameters, list) else parameters)

    event.listen(yard.store.engine, "before_cursor_execute", note)
    calls(yard)
    event.remove(yard.store.engine, "before_cursor_execute", note)
    whole = {}
    with yard.store.engine.connect() as connection:
        explain = "EXPLAIN QUERY PLAN "
        if databases.kind != "sqlite":
            explain = "EXPLAIN "
            # These tables are so small that PostgreSQL would read them whole: it does now where no index will do.
            connection.exec_driver_sql("SET enable_seqscan = off")
        for statement, parameters in asked.items():
            plan = "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))
            if found := set(WHOLE_TABLE.findall(plan)) - OF_FEW:
                whole[statement] = found
    yard.store.close()
    assert list(whole.values()) == []
    assert len(asked) > 50
