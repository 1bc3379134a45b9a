"""how many files each org has, and which of its batches have not ended."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("org", sa.Column("files", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("org", sa.Column("file_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(
        "UPDATE org SET files = (SELECT count(*) FROM file WHERE org_id = org.id AND hidden_at IS NULL), "
        "file_bytes = (SELECT coalesce(sum(bytes), 0) FROM file WHERE org_id = org.id AND hidden_at IS NULL)"
    )
    only = sa.text("ended_at IS NULL")
    op.create_index("ix_batch_open", "batch", ["org_id"], sqlite_where=only, postgresql_where=only)
