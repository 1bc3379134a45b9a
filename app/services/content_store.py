"""Is the store of contents that is there the one of this database?

An unmounted folder answers "no such file" for every content. So the store has a marker with an id, and the database has
the same id: without the marker the store is away, and nothing in it counts as missing (PROTOCOL 8).
"""

from app.blobs.store import BlobUnavailable, ForeignStore, new_key
from app.db import content_store as store_sql
from app.services.context import Yard

LOOKED_FOR = 20
"""So many known contents are looked for before a store without a marker is taken for this database's."""


def settle(yard: Yard) -> None:
    """Expect the database's own store from now on; mark it first where that was never done. Called at each start.

    A store that is away is waited for. Raises ForeignStore for another installation's, BlobUnavailable for one that
    cannot be marked.
    """
    known = yard.store.run(lambda session: store_sql.find_or_make(session, new_key(), yard.store.now(session)))
    if known.marked_at is None:
        found = yard.blobs.identity()
        _refuse_other_id(found, known.id)
        if found is None:
            _refuse_strange_contents(yard)
            yard.blobs.mark(known.id)
        yard.store.run(lambda session: store_sql.set_marked(session, yard.store.now(session)))
    expect(yard)


def adopt(yard: Yard) -> None:
    """Make the store that is there the one of a database that an operator has begun anew; it knows no content of it."""
    found = yard.blobs.identity()
    known = yard.store.run(lambda session: store_sql.find_or_make(session, found or new_key(), yard.store.now(session)))
    if found is None:
        yard.blobs.mark(known.id)
    if found in {None, known.id}:
        yard.store.run(lambda session: store_sql.set_marked(session, yard.store.now(session)))


def expect(yard: Yard) -> None:
    """Expect the database's own store from now on, if it was ever marked. Nothing is written. Raises ForeignStore."""
    with yard.store.read() as session:
        known = store_sql.find(session)
    if known is None or known.marked_at is None:
        return
    yard.blobs.expect(known.id)
    try:
        found = yard.blobs.identity()
    except BlobUnavailable:
        return  # it is away, and every call says so
    _refuse_other_id(found, known.id)


def _refuse_other_id(found: str | None, store_id: str) -> None:
    if found not in {None, store_id}:
        raise ForeignStore(
            f"the store of contents has the id {found} and this database's has {store_id}: it is another "
            "installation's. Name the database that it belongs to (GPUYARD_DATABASE_URL), or a data folder of its own "
            "(GPUYARD_DATA_DIR)"
        )


def _refuse_strange_contents(yard: Yard) -> None:
    """Raise ForeignStore where a store without a marker has contents of others, or none that the database knows."""
    with yard.store.read() as session:
        known = store_sql.newest_contents(session, LOOKED_FOR)
    if known and not any(yard.blobs.exists(key) for key in known):
        raise ForeignStore(
            "the store of contents has none of the contents that this database knows: mount the disk of "
            "GPUYARD_DATA_DIR/blobs, or put the contents back"
        )
    if not known and next(yard.blobs.all_keys(), None) is not None:
        raise ForeignStore(
            "the store of contents holds contents and this database knows none: the store is another installation's, "
            "or the database is a new one. Name the right database (GPUYARD_DATABASE_URL), or move "
            "GPUYARD_DATA_DIR/blobs away"
        )
