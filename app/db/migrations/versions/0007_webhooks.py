"""webhooks."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "webhook_endpoint",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("event_types", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("secret_hint", sa.String(), nullable=False),
        sa.Column("old_secret_until", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("succeeded_at", sa.BigInteger(), nullable=True),
        sa.Column("failed_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_reason", sa.String(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_endpoint_org", "webhook_endpoint", ["org_id", "seq"], unique=False)
    op.add_column("job", sa.Column("endpoint_id", sa.String(), nullable=True))
    op.create_index(
        "ix_job_endpoint",
        "job",
        ["endpoint_id", "id"],
        unique=False,
        sqlite_where=sa.text("endpoint_id IS NOT NULL"),
        postgresql_where=sa.text("endpoint_id IS NOT NULL"),
    )
    op.drop_index("ix_job_control", table_name="job")
    op.create_index("ix_job_control", "job", ["kind", "state", "verb", "not_before_at"], unique=False)
