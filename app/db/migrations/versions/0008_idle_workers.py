"""idle workers."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. A worker that holds something looks idle until its next call: leases are asked too."""
    op.add_column("worker", sa.Column("holds", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_index(
        "ix_worker_idle",
        "worker",
        ["pool", "last_seen_at"],
        unique=False,
        sqlite_where=sa.text("holds IS 0"),
        postgresql_where=sa.text("holds IS false"),
    )
