"""how many answers are not in the form, or not of the model, that their rows asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    for table in ("job", "batch"):
        for name in ("answers_off_format", "answers_other_model"):
            op.add_column(table, sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
