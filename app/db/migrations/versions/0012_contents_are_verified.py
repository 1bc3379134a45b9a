"""checksums of contents and of shards' inputs, and what was found damaged."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. What was written before has no checksums, and cannot be verified."""
    op.add_column("blob", sa.Column("block_sums", sa.String(), nullable=True))
    op.add_column("blob", sa.Column("damaged_at", sa.BigInteger(), nullable=True))
    op.add_column("blob", sa.Column("damage", sa.String(), nullable=True))
    op.add_column("job", sa.Column("input_sum", sa.String(), nullable=True))
