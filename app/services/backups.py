"""Backups: a folder with the database as it was at one moment, and every content that it refers to.

The database first, then the contents: a content is there before a row says so and stays a day after the last row did,
so each row of the copy finds its own. Back it goes the other way round.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app import durable
from app.blobs.local import LocalBlobs
from app.blobs.sections import pieces_of
from app.blobs.store import BlobMissing, BlobStore
from app.db import backups as backups_sql
from app.db import content_store as content_store_sql
from app.db import events, restored, schema
from app.db.backups import Content
from app.db.store import Store
from app.os_errors import plainly
from app.services import content_store
from app.services.context import Yard

KEY_FILES = ("webhooks.key", "keys.json")
"""Of the data folder: what webhook secrets are derived from, and the keys of `gpuyard up`."""
MANIFEST = "backup.json"
log = logging.getLogger(__name__)


class BackupRefused(Exception):
    """It would destroy something, or is no backup; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a backup holds. `damaged` names contents that are needed and of which it has no whole copy.

    After a restore those are meant that were not put back whole. `damaged_here` names contents that the installation
    has lost or damaged since, and of which the backup has a whole copy; the folder does not keep that.
    """

    made_at: str
    revision: str
    database: str
    contents: int
    bytes: int
    copied: int
    damaged: tuple[str, ...] = ()
    damaged_here: tuple[str, ...] = ()


def make(yard: Yard, data_dir: Path, folder: Path) -> Made:
    """Write a backup into `folder`, or bring the one that is there up to date: contents never change under their keys.

    What was there stays whole until the new one is. Raises BackupRefused, app.db.schema.SchemaMismatch,
    app.db.backups.DumpFailed, BlobUnavailable.
    """
    schema.refuse_none(yard.store)
    schema.check(yard.store)
    content_store.expect(yard)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone_in(folder):
        return _make(yard, data_dir, folder)


def _make(yard: Yard, data_dir: Path, folder: Path) -> Made:
    doubtful = _damaged_before(folder)
    _prepare(folder)
    name = backups_sql.file_name(yard.store)
    part = folder / f"{name}.part"
    part.unlink(missing_ok=True)
    with yard.store.read() as session:
        made_at = yard.store.now(session)
    store_id = yard.blobs.identity()
    known = backups_sql.copy(yard.store, part)
    copies = LocalBlobs(folder / "blobs")
    if store_id is not None:
        copies.mark(store_id)
    copies.collect_leftovers(0)
    copied, damaged, damaged_here = _copy_contents(yard.blobs, copies, known, doubtful)
    for key_file in KEY_FILES:
        _copy_private(data_dir / key_file, folder / key_file)
    part.replace(folder / name)
    made = Made(
        made_at=made_at.isoformat(),
        revision=schema.head(),
        database=yard.store.dialect,
        contents=len(known),
        bytes=sum(content.bytes for content in known),
        copied=copied,
        damaged=tuple(damaged),
    )
    kept = {name: value for name, value in asdict(made).items() if name != "damaged_here"}
    durable.write(folder / MANIFEST, f"{json.dumps(kept, indent=2)}\n".encode())
    for key in set(copies.all_keys()) - {content.key for content in known}:
        copies.delete(key)
    return replace(made, damaged_here=tuple(damaged_here))


def put_back(yard: Yard, data_dir: Path, folder: Path) -> Made:
    """Fill an empty installation with a backup. Contents first, so that no row is ever without its own.

    Raises BackupRefused, app.db.backups.DumpFailed, app.db.schema.SchemaMismatch for one of a newer version.
    """
    if not folder.is_dir():
        raise BackupRefused(f"{folder} holds no whole backup: there is no such folder")
    with _alone_in(folder):
        return _put_back(yard, data_dir, folder)


def _put_back(yard: Yard, data_dir: Path, folder: Path) -> Made:
    made = read(folder)
    schema.refuse_newer(made.revision)
    if made.database != yard.store.dialect:
        raise BackupRefused(
            f"this is a backup of {made.database}, and the settings name a {yard.store.dialect} database"
        )
    backups_sql.check_copy(yard.store, folder / backups_sql.file_name(yard.store))
    if not backups_sql.is_empty(yard.store):
        raise BackupRefused("the database has tables: a backup goes into an empty one. Move it away first")
    if next(LocalBlobs(data_dir / "blobs").all_keys(), None) is not None:
        raise BackupRefused(
            f"{data_dir / 'blobs'} has contents, which the backup may not know: move the folder away first"
        )
    for name in KEY_FILES:
        if _differ(folder / name, data_dir / name):
            raise BackupRefused(f"{data_dir / name} is not the backup's, and would be lost: move the folder away first")
    saved = LocalBlobs(folder / "blobs")
    digests = {key: yard.blobs.put(key, pieces_of(saved.open(key))).sha256 for key in saved.all_keys()}
    if (store_id := saved.identity()) is not None:
        yard.blobs.mark(store_id)
    for name in KEY_FILES:
        _copy_private(folder / name, data_dir / name)
    with backups_sql.put_back(yard.store, folder / backups_sql.file_name(yard.store)) as store:
        settle(store, made_at=made.made_at)
        # An older version's database may have other columns, and is brought up first.
        known = backups_sql.contents(store) if made.revision == schema.head() else ()
    lost = tuple(
        each.key
        for each in known
        if each.needed and (each.key not in digests or each.digest not in {None, digests[each.key]})
    )
    return replace(made, damaged=lost)


def settle(store: Store, *, made_at: str | None = None) -> None:
    """Do what an older database needs that was put back, by whatever means, before anybody uses it.

    Twice does no harm.
    """
    backups_sql.jump(store)
    restored.settle(store)
    with store.begin() as session:
        content_store_sql.look_again(session)
        events.record(
            session,
            now=store.now(session),
            type="service.restored",
            subject="service",
            actor="service:restore",
            data={"made_at": made_at},
        )


def read(folder: Path) -> Made:
    """Read what a backup says of itself. Raises BackupRefused."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return Made(**found | {"damaged": tuple(found["damaged"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackupRefused(f"{folder} holds no whole backup: {plainly(error)}") from None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Be the only one at a backup: of two that write, one would drop what the other has just copied."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BackupRefused(f"another backup or restore is at {folder}: let it end first") from None
    except OSError as error:
        log.warning("%s cannot be locked (%s): start no second backup into it meanwhile", folder, error.strerror)
    try:
        yield
    finally:
        os.close(descriptor)


def _prepare(folder: Path) -> None:
    manifest = folder / MANIFEST
    if any(folder.iterdir()):
        if not manifest.exists():
            raise BackupRefused(f"{folder} is neither empty nor a backup of ours")
        return
    durable.write(manifest, b'{"unfinished": true}\n')  # so that one that is cut off can be begun again


def _damaged_before(folder: Path) -> Collection[str]:
    """Name what was damaged the last time: its copy may have the right size, and it may have been mended since."""
    try:
        return read(folder).damaged
    except BackupRefused:
        return ()


def _copy_contents(
    source: BlobStore, copies: LocalBlobs, known: Sequence[Content], doubtful: Collection[str]
) -> tuple[int, list[str], list[str]]:
    """Copy what is not there yet, and return how many were copied whole.

    Then those that are needed and have no whole copy, and those that have one and are not whole at their source.
    """
    copied = 0
    damaged: list[str] = []
    damaged_here: list[str] = []
    for content in known:
        if content.key not in doubtful and _is_there(copies, content):
            if content.needed and not _seems_whole(source, content):
                damaged_here.append(content.key)
            continue
        try:
            stored = copies.put(content.key, pieces_of(source.open(content.key)))
        except BlobMissing:
            is_whole = False
        else:
            is_whole = content.digest in {None, stored.sha256}
        copied += is_whole
        if content.needed and not is_whole:
            damaged.append(content.key)
    return copied, damaged, damaged_here


def _seems_whole(source: BlobStore, content: Content) -> bool:
    """Compare the size of a content that was copied before, and its digest where it was found damaged."""
    if not _is_there(source, content):
        return False
    if not content.is_marked or content.digest is None:
        return not content.is_marked
    digest = hashlib.sha256()
    try:
        for piece in pieces_of(source.open(content.key)):
            digest.update(piece)
    except BlobMissing:  # as a disk says of a file that it cannot read
        return False
    return digest.hexdigest() == content.digest


def _is_there(blobs: BlobStore, content: Content) -> bool:
    return blobs.exists(content.key) and blobs.size(content.key) == content.bytes


def _differ(source: Path, target: Path) -> bool:
    return source.exists() and target.exists() and source.read_bytes() != target.read_bytes()


def _copy_private(source: Path, target: Path) -> None:
    """Copy a small file; what was there is whole until the new one is."""
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        durable.write(target, source.read_bytes())
