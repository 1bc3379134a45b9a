"""where a damaged content differs from what was written."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("blob", sa.Column("damage", sa.String(), nullable=True))
