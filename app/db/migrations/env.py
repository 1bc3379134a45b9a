"""Alembic's entry point. The connection comes from app.db.schema; there is no alembic.ini."""

from typing import Any, Literal

from alembic import context
from sqlmodel import AutoString, SQLModel

from app.db import tables
from app.db.types import AnyText, Json, UtcMs

_ = tables.Batch  # the import fills the metadata


def render(kind: str, value: Any, _context: Any) -> str | Literal[False]:
    """Write plain column types into revisions, so that old revisions never import today's code."""
    if kind == "type" and isinstance(value, UtcMs):
        return "sa.BigInteger()"
    if kind == "type" and isinstance(value, AnyText | AutoString):
        return "sa.String()"
    if kind == "type" and isinstance(value, Json):
        return "sa.JSON()"
    return False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    compare_type=True,
    render_item=render,
)
with context.begin_transaction():
    context.run_migrations()
