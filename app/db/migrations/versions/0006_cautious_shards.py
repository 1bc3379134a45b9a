"""cautious shards."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("job", sa.Column("cautious_at", sa.BigInteger(), nullable=True))
    op.add_column("job", sa.Column("cautious_worker_id", sa.String(), nullable=True))
    op.create_index(
        "ix_job_cautious",
        "job",
        ["batch_id"],
        unique=False,
        sqlite_where=sa.text("cautious_at IS NOT NULL"),
        postgresql_where=sa.text("cautious_at IS NOT NULL"),
    )
    op.add_column("lease", sa.Column("running_row", sa.Integer(), nullable=True))
    op.add_column("worker", sa.Column("row_by_row", sa.Boolean(), server_default=sa.false(), nullable=False))
