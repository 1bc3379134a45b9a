"""batches that run rows of another one again, and why rows failed."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. Why rows of a batch failed that has ended is still looked up in its error file."""
    op.add_column("batch", sa.Column("retry_of", sa.String(), nullable=True))
    op.add_column("batch", sa.Column("row_errors", sa.JSON(), nullable=True))
    condition = sa.text("retry_of IS NOT NULL")
    op.create_index("ix_batch_retry", "batch", ["retry_of", "seq"], sqlite_where=condition, postgresql_where=condition)
