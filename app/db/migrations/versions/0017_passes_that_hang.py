"""since when a sweep has a pass that began and has not ended."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("sweep_state", sa.Column("unfinished_since", sa.BigInteger(), nullable=True))
