"""Two transactions at once, in the order a test wants: one is held open at a chosen point while another one starts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from sqlalchemy import event, text

from app.db.store import Store

T = TypeVar("T")
SECONDS = 20.0
"""How long anything may take. Nothing comes near it unless it hangs."""
GIVES_WAY_SECONDS = 0.15
"""How long somebody is watched who is to wait, where the database does not show who waits."""


class Doer(Generic[T]):
    """Does `work` in a thread of its own, from now on."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: list[T] = []
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Doer[T]":
        self.thread.start()
        return self

    def result(self) -> T:
        """What came of it; raises what it raised."""
        self.thread.join(SECONDS)
        assert not self.thread.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._found[0]

    def assert_waits(self, store: Store) -> None:
        """Assert that it cannot go on. PostgreSQL says so itself; SQLite's writers queue in front of the database."""
        if store.dialect == "sqlite":
            self.thread.join(GIVES_WAY_SECONDS)
            assert self.thread.is_alive(), "it did not wait"
            return
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        with store.engine.connect() as connection:
            for _ in range(int(SECONDS / 0.01)):
                assert self.thread.is_alive(), "it did not wait"
                if connection.execute(waiting).scalar_one():
                    return
                connection.rollback()
                self.thread.join(0.01)
        raise AssertionError("it neither waits nor ends")

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            self._error = error


def doing(work: Callable[[], T]) -> Doer[T]:
    """Start `work` in a thread."""
    return Doer(work).start()


class Checkpoint:
    """Where one thread is held: at the `nth` statement that begins with `before`, or at a commit after another one."""

    def __init__(self, before: str, nth: int, at_commit_after: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self._before, self._left, self._commit_after = before, nth, at_commit_after
        self._armed = False

    def on_statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread() is not self.thread:
            return
        if self._commit_after and statement.startswith(self._commit_after):
            self._armed = True
        if self._before and statement.startswith(self._before):
            self._left -= 1
            if self._left == 0:
                self._hold()

    def on_commit(self, _connection: Any) -> None:
        if self._armed and threading.current_thread() is self.thread and not self.reached.is_set():
            self._hold()

    def _hold(self) -> None:
        self.reached.set()
        assert self.go.wait(SECONDS)


@contextmanager
def held(
    store: Store, work: Callable[[], T], *, before: str = "", nth: int = 1, at_commit_after: str = ""
) -> Iterator[Doer[T]]:
    """Start `work` and hold it open until the block ends; there, let it go on and wait for its end.

    It is held before the `nth` statement that begins with `before`, or before the commit of the transaction that
    executed one that begins with `at_commit_after`.
    """
    point = Checkpoint(before, nth, at_commit_after)
    doer = Doer(work)
    point.thread = doer.thread
    event.listen(store.engine, "before_cursor_execute", point.on_statement)
    event.listen(store.engine, "commit", point.on_commit)
    try:
        doer.start()
        while not point.reached.wait(0.005):
            if not doer.thread.is_alive():
                doer.result()
                raise AssertionError("it ended without coming to the point where it was to be held")
        yield doer
    finally:
        point.go.set()
        doer.thread.join(SECONDS)
        event.remove(store.engine, "before_cursor_execute", point.on_statement)
        event.remove(store.engine, "commit", point.on_commit)


class Crash(BaseException):
    """The process is gone, as far as the work at hand is concerned."""


@contextmanager
def crashing(store: Store, *, at_statement: int) -> Iterator[list[str]]:
    """Break this thread's work before its n-th statement (from 1); gives the statements that were met."""
    thread = threading.current_thread()
    met: list[str] = []

    def on_statement(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread() is thread:
            met.append(statement)
            if len(met) == at_statement:
                raise Crash

    event.listen(store.engine, "before_cursor_execute", on_statement)
    try:
        yield met
    finally:
        event.remove(store.engine, "before_cursor_execute", on_statement)
