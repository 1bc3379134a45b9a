"""what a worker's runtimes fetch."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("worker", sa.Column("pulls", sa.JSON(), server_default="[]", nullable=False))
