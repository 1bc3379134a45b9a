"""batches may drop parameters."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("batch", sa.Column("drop_parameters", sa.Boolean(), server_default=sa.false(), nullable=False))
