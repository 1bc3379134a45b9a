"""how many processes a worker's install has had."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("worker", sa.Column("starts", sa.Integer(), server_default="0", nullable=False))
