"""since when the heartbeats of a pool with its own timing could be heard without a gap."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("pool", sa.Column("heard_since", sa.BigInteger(), nullable=True))
