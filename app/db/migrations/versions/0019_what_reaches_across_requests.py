"""what is left out of a batch's rows because it reaches across requests; who was asked for models, and has looked."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("batch", sa.Column("left_out", sa.JSON(), server_default="[]", nullable=False))
    op.add_column("batch", sa.Column("models_asked_at", sa.BigInteger(), nullable=True))
    op.add_column("worker", sa.Column("look_requested_at", sa.BigInteger(), nullable=True))
    op.add_column("worker", sa.Column("looked_at", sa.BigInteger(), nullable=True))
