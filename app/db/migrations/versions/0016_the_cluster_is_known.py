"""which PostgreSQL cluster numbered the transactions that wrote events and segments."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. No row: the first start looks at every event and segment once."""
    op.create_table(
        "known_cluster",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("system_identifier", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
