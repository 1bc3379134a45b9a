"""what is kept of batches that have ended."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. What is kept of batches that have ended is counted from the time of their end."""
    op.add_column("batch", sa.Column("ended_at", sa.BigInteger(), nullable=True))
    op.add_column("batch", sa.Column("kept", sa.String(), server_default="rows", nullable=False))
    op.add_column("batch", sa.Column("top_errors", sa.JSON(), nullable=True))
    op.execute(
        "UPDATE batch SET ended_at = COALESCE(completed_at, failed_at, expired_at, cancelled_at) "
        "WHERE state IN ('completed', 'failed', 'expired', 'cancelled')"
    )
    op.create_index("ix_batch_kept", "batch", ["kept", "ended_at"], unique=False)
    _partial("ix_batch_idempotency", "batch", ["token_id", "idempotency_key"], "idempotency_key IS NOT NULL")
    _partial("ix_batch_output", "batch", ["output_file_id"], "output_file_id IS NOT NULL")
    _partial("ix_batch_error", "batch", ["error_file_id"], "error_file_id IS NOT NULL")
    _partial("ix_job_told", "job", ["ended_at"], "endpoint_id IS NOT NULL AND ended_at IS NOT NULL")
    op.create_index("ix_lease_batch", "lease", ["batch_id"], unique=False)
    op.drop_index("ix_blob_unreferenced_at", table_name="blob")
    _partial(
        "ix_blob_unreferenced", "blob", ["unreferenced_at"], "unreferenced_at IS NOT NULL AND collected_at IS NULL"
    )
    _partial("ix_blob_unput", "blob", ["created_at"], "put_at IS NULL")


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=False, sqlite_where=condition, postgresql_where=condition)
