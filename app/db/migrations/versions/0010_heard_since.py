"""since when heartbeats could be heard without a gap."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("presence_tick", sa.Column("heard_since", sa.BigInteger(), nullable=True))
