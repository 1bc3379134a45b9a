"""What a template database is built by."""

from app.db import migrating
from app.db.store import Store


def migrate(url: str) -> None:
    """Bring the database at `url` to this version's schema."""
    opened = Store(url)
    migrating.migrate(opened)
    opened.close()
