"""first rows go first."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("batch", sa.Column("canary_rows", sa.Integer(), server_default="0", nullable=False))
    op.add_column("batch", sa.Column("canary_over", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("lease", sa.Column("failing", sa.String(), nullable=True))
    op.add_column("lease", sa.Column("failing_at", sa.BigInteger(), nullable=True))
