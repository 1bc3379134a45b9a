"""The database is on a machine of its own, and every packet between it and the others vanishes without a word."""

from contextlib import closing

import httpx
from sqlalchemy import text

from app.db.store import Store
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import until
from tests.hosts.hosted import GPUS, HostedYard, figures, now

NOTICED_SECONDS = 90.0
"""Connections are given up after 20 s, and one call may meet several of them."""
ROWS = 1000


def test_the_api_says_so_and_goes_on_when_it_is_back(yard: HostedYard) -> None:
    ran = yard.rows_run()
    batch = yard.submit(marked("far", ROWS, "latency_ms=400"))
    batch.stored(100)
    with figures("the control plane cut off from its database") as times:
        with yard.network.cut("yard", "database"):
            cut_at = now()
            until(lambda: _says_unready(yard), "the API says that it cannot serve", seconds=NOTICED_SECONDS)
            times["503"] = now() - cut_at
        mended_at = now()
        until(lambda: yard.http.get("/readyz").is_success, "it serves again", seconds=NOTICED_SECONDS)
        times["serves again"] = now() - mended_at
        batch.ended(seconds=180)
    assert_each_row_once(batch, "far", ROWS)
    assert yard.rows_run() - ran < 2 * ROWS
    assert all(yard.gpus[name].worker.alive for name in GPUS)


def test_what_a_machine_had_locked_that_is_gone_is_free_again(yard: HostedYard) -> None:
    lock = text("SELECT name FROM pool WHERE name = 'gpu' FOR UPDATE")
    with closing(Store(yard.database_url)) as gone, closing(Store(yard.database_url)) as other:
        theirs = gone.engine.connect()
        theirs.execute(lock)
        with figures("locked by one that is gone") as times, yard.network.cut("desk", "database"):
            cut_at = now()
            with yard.network["yard"].entered(), other.engine.connect() as ours:
                ours.execute(text(f"SET lock_timeout = '{NOTICED_SECONDS:g}s'"))
                ours.execute(lock)
                times["free"] = now() - cut_at
        theirs.invalidate()


def _says_unready(yard: HostedYard) -> bool:
    try:
        return yard.http.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
    except httpx.ReadTimeout:
        return False
