"""the id of the store of contents, and how often a piece of control work found contents missing."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. The next start marks the store that is there, if its contents are known."""
    op.create_table(
        "content_store",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("marked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.add_column("job", sa.Column("content_tries", sa.Integer(), server_default="0", nullable=False))
