"""`python -m app.api`: what `gpuyard serve` starts. `migrate` as its argument brings the schema up, and ends.

`check` says on standard output, as JSON, whether database, schema and contents can be used: for `gpuyard doctor`.
`contents` reads all of them and says what is not what was written: for `gpuyard doctor --contents`.
`backup` and `restore` with a folder are the commands of these names.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.interrupts import EXIT_CODE, ends_at_once

with ends_at_once():
    from app.blobs.store import BlobUnavailable
    from app.db import schema
    from app.db.schema import SchemaMismatch
    from app.db.store import DatabaseUnavailable, Store
    from app.os_errors import plainly
    from config.errors import SettingsError
    from config.logging import configure
    from config.settings import ServerSettings, load


VERBS = ("serve", "migrate", "check", "contents", "backup", "restore")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives the exit code."""
    asked = _parser().parse_args(arguments)
    given = {name: getattr(asked, name) for name in ("host", "port", "tls_cert", "tls_key", "data_dir")}
    try:
        settings = load(ServerSettings, cli={name: value for name, value in given.items() if value is not None})
        if asked.verb == "migrate":
            return _migrate(settings, as_json=asked.json, restored=asked.restored, new=asked.new_database)
        if asked.verb == "check":
            return _check(settings)
        if asked.verb in {"backup", "restore"}:
            with ends_at_once():
                from app.api import backing_up  # noqa: PLC0415 - only these verbs need it

            return backing_up.run(asked.verb, settings, asked.folder, as_json=asked.json)
        if asked.verb == "contents":
            from app.api import checking_contents  # noqa: PLC0415 - only this verb needs it

            return checking_contents.run(settings)
        configure("api", level=settings.log_level, as_json=settings.log_json)
        if asked.migrate and not _is_current(settings):
            _migrate(settings)
        with ends_at_once():
            from app.api import serving  # noqa: PLC0415 - two seconds that the other verbs need not wait for

        serving.prepare(settings, init=asked.init)
    except (SettingsError, SchemaMismatch, DatabaseUnavailable, BlobUnavailable, OSError) as error:
        words = plainly(error).split()  # a driver says some things in several lines
        print(f"gpuyard: {' '.join(words)}", file=sys.stderr)
        return 1
    return serving.serve(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuyard serve", description="The API and its schema.")
    parser.add_argument("verb", nargs="?", choices=VERBS, default="serve")
    parser.add_argument("folder", nargs="?", type=Path, help="of backup and restore")
    parser.add_argument("--init", action="store_true", help="make the first admin key, if there is none, and print it")
    parser.add_argument("--migrate", action="store_true", help="bring the schema up first")
    parser.add_argument("--restored", action="store_true", help="of migrate: the database is an older one, put back")
    parser.add_argument("--new-database", action="store_true", help="of migrate: begin an empty SQLite file again")
    parser.add_argument("--json", action="store_true", help="of migrate, backup, restore: print one JSON document")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    return parser


def _is_current(settings: ServerSettings) -> bool:
    store = Store(settings.database_url.get_secret_value())
    try:
        schema.check(store)
    except SchemaMismatch:
        return False  # a newer one is refused where it would be changed
    else:
        return True
    finally:
        store.close()


def _migrate(settings: ServerSettings, *, as_json: bool = False, restored: bool = False, new: bool = False) -> int:
    from app.db.migrating import migrate  # noqa: PLC0415 - only this verb needs Alembic

    store = Store(settings.database_url.get_secret_value())
    try:
        if restored:
            schema.refuse_none(store)
        revision = migrate(store, new=new)
        if restored:
            from app.services import backups  # noqa: PLC0415 - after it, which is rare

            backups.settle(store)
        if new:
            _adopt_contents(settings)
        print(json.dumps({"revision": revision}) if as_json else f"gpuyard: the schema is at revision {revision}")
    finally:
        store.close()
    return 0


def _adopt_contents(settings: ServerSettings) -> None:
    from app.services import content_store  # noqa: PLC0415 - as above
    from app.services.opening import open_yard  # noqa: PLC0415 - as above

    yard = open_yard(settings)
    try:
        content_store.adopt(yard)
    finally:
        yard.store.close()


def _check(settings: ServerSettings) -> int:
    from app.services import readiness  # noqa: PLC0415 - as above
    from app.services.opening import open_yard  # noqa: PLC0415 - as above

    yard = open_yard(settings)
    try:
        found = readiness.look(yard, for_anybody=False)
    finally:
        yard.store.close()
    print(json.dumps(asdict(found)))
    return 0 if found.ready else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE)
