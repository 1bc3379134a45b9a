"""commands reach workers that wait."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("worker", sa.Column("reset_requested_at", sa.BigInteger(), nullable=True))
    op.add_column("worker", sa.Column("command_at", sa.BigInteger(), nullable=True))
    op.create_index("ix_worker_command", "worker", ["command_at"], unique=False)
    op.create_index(
        "ix_lease_stopping",
        "lease",
        ["worker_id", "batch_id"],
        unique=False,
        sqlite_where=sa.text("state = 'stopping'"),
        postgresql_where=sa.text("state = 'stopping'"),
    )
