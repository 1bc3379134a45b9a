"""What a template database is built by."""

from app.db import schema
from app.db.store import Store


def migrate(url: str) -> None:
    """Bring the database at `url` to this version's schema."""
    opened = Store(url)
    schema.migrate(opened)
    opened.close()
