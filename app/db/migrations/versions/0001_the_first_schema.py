"""the first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "event",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("txid", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_event_at"), ["at"], unique=False)
        batch_op.create_index("ix_event_org", ["org_id", "seq"], unique=False)
        batch_op.create_index("ix_event_subject", ["subject", "seq"], unique=False)

    op.create_table(
        "org",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("operator", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "presence_tick",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "sweep_state",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("last_run_at", sa.BigInteger(), nullable=False),
        sa.Column("runner", sa.String(), nullable=False),
        sa.Column("counts", sa.JSON(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "api_token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("single_worker", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256"),
    )
    with op.batch_alter_table("api_token", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_api_token_org_id"), ["org_id"], unique=False)

    op.create_table(
        "blob",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("put_at", sa.BigInteger(), nullable=True),
        sa.Column("unreferenced_at", sa.BigInteger(), nullable=True),
        sa.Column("collected_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.PrimaryKeyConstraint("key"),
    )
    with op.batch_alter_table("blob", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_blob_unreferenced_at"), ["unreferenced_at"], unique=False)

    op.create_table(
        "pool",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=True),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("slots", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("max_load", sa.Float(), nullable=True),
        sa.Column("min_memory_gb", sa.Float(), nullable=True),
        sa.Column("max_losses", sa.Integer(), nullable=True),
        sa.Column("timing", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("install_id", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("transport", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=True),
        sa.Column("activity", sa.String(), nullable=False),
        sa.Column("hostname", sa.String(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("max_concurrent_prompts", sa.Integer(), nullable=True),
        sa.Column("current_invocations", sa.Integer(), nullable=False),
        sa.Column("tags", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("versions", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("runtimes", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("timing", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("sample", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("progress", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("no_lease", sa.String(), nullable=True),
        sa.Column("drain_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("hello_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("last_beat_at", sa.BigInteger(), nullable=True),
        sa.Column("offline_at", sa.BigInteger(), nullable=True),
        sa.Column("gone_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("org_id", "name"),
    )
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.create_index("ix_worker_pool", ["pool", "state"], unique=False)
        batch_op.create_index("ix_worker_seen", ["state", "last_seen_at"], unique=False)

    op.create_table(
        "file",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("blob_key", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("hidden_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["blob_key"], ["blob.key"]),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("file", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_file_blob_key"), ["blob_key"], unique=False)
        batch_op.create_index(batch_op.f("ix_file_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index("ix_file_org", ["org_id", "purpose", "seq"], unique=False)

    op.create_table(
        "batch",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("completion_window", sa.String(), nullable=False),
        sa.Column("input_file_id", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("fair_group", sa.String(), nullable=True),
        sa.Column("meta", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("output_expires_seconds", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("stop_spread_at", sa.BigInteger(), nullable=True),
        sa.Column("open_jobs", sa.Integer(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("shards", sa.Integer(), nullable=False),
        sa.Column("requirements", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("models", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("errors", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("error_count", sa.Integer(), nullable=False),
        sa.Column("waiting_reason", sa.String(), nullable=True),
        sa.Column("rung_at", sa.BigInteger(), nullable=True),
        sa.Column("ring_no", sa.Integer(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=True),
        sa.Column("failed", sa.Integer(), nullable=True),
        sa.Column("usage", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("output_file_id", sa.String(), nullable=True),
        sa.Column("error_file_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("validated_at", sa.BigInteger(), nullable=True),
        sa.Column("in_progress_at", sa.BigInteger(), nullable=True),
        sa.Column("finalizing_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("failed_at", sa.BigInteger(), nullable=True),
        sa.Column("expired_at", sa.BigInteger(), nullable=True),
        sa.Column("cancelling_at", sa.BigInteger(), nullable=True),
        sa.Column("cancelled_at", sa.BigInteger(), nullable=True),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("args_digest", sa.String(), nullable=True),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("seen", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["error_file_id"], ["file.id"]),
        sa.ForeignKeyConstraint(["input_file_id"], ["file.id"]),
        sa.ForeignKeyConstraint(["org_id"], ["org.id"]),
        sa.ForeignKeyConstraint(["output_file_id"], ["file.id"]),
        sa.ForeignKeyConstraint(["pool"], ["pool.name"]),
        sa.ForeignKeyConstraint(["token_id"], ["api_token.id"]),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.create_index("ix_batch_create", ["token_id", "args_digest"], unique=False)
        batch_op.create_index("ix_batch_due", ["state", "expires_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_batch_input_file_id"), ["input_file_id"], unique=False)
        batch_op.create_index("ix_batch_order", ["pool", "state", "rank", "expires_at", "seq"], unique=False)
        batch_op.create_index("ix_batch_org", ["org_id", "seq"], unique=False)

    op.create_table(
        "job",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("verb", sa.String(), nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("requirement_key", sa.String(), nullable=True),
        sa.Column("first_row", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("done_rows", sa.String(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("last_worker_id", sa.String(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("not_before_at", sa.BigInteger(), nullable=True),
        sa.Column("rung_at", sa.BigInteger(), nullable=True),
        sa.Column("ring_no", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("batch_id", "kind", "verb", "number"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.create_index("ix_job_claim", ["batch_id", "kind", "state", "number"], unique=False)
        batch_op.create_index("ix_job_control", ["kind", "state", "not_before_at"], unique=False)

    op.create_table(
        "lease",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("claim_request", sa.String(), nullable=False),
        sa.Column("unstarted", sa.Boolean(), nullable=False),
        sa.Column("spooled", sa.Boolean(), nullable=False),
        sa.Column("missed_beats", sa.Integer(), nullable=False),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.Column("renewed_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("report_request", sa.String(), nullable=True),
        sa.Column("receipt", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"]),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"]),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("lease", schema=None) as batch_op:
        batch_op.create_index("ix_lease_claim", ["worker_id", "claim_request"], unique=False)
        batch_op.create_index(
            "ix_lease_expiry",
            ["expires_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('held', 'stopping')"),
            postgresql_where=sa.text("state IN ('held', 'stopping')"),
        )
        batch_op.create_index(batch_op.f("ix_lease_job_id"), ["job_id"], unique=False)
        batch_op.create_index(
            "ix_lease_worker",
            ["worker_id"],
            unique=False,
            sqlite_where=sa.text("state IN ('held', 'stopping')"),
            postgresql_where=sa.text("state IN ('held', 'stopping')"),
        )
        batch_op.create_index(
            "uq_lease_live",
            ["job_id"],
            unique=True,
            sqlite_where=sa.text("state IN ('held', 'stopping')"),
            postgresql_where=sa.text("state IN ('held', 'stopping')"),
        )

    op.create_table(
        "segment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("lease_id", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("rows", sa.String(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("blob_key", sa.String(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("txid", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"]),
        sa.ForeignKeyConstraint(["blob_key"], ["blob.key"]),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"]),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("lease_id", "seq"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("segment", schema=None) as batch_op:
        batch_op.create_index("ix_segment_batch", ["batch_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_segment_blob_key"), ["blob_key"], unique=False)
        batch_op.create_index("ix_segment_job", ["job_id", "id"], unique=False)


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("segment", schema=None) as batch_op:
        batch_op.drop_index("ix_segment_job")
        batch_op.drop_index(batch_op.f("ix_segment_blob_key"))
        batch_op.drop_index("ix_segment_batch")

    op.drop_table("segment")
    with op.batch_alter_table("lease", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_lease_live",
            sqlite_where=sa.text("state IN ('held', 'stopping')"),
            postgresql_where=sa.text("state IN ('held', 'stopping')"),
        )
        batch_op.drop_index(
            "ix_lease_worker",
            sqlite_where=sa.text("state IN ('held', 'stopping')"),
            postgresql_where=sa.text("state IN ('held', 'stopping')"),
        )
        batch_op.drop_index(batch_op.f("ix_lease_job_id"))
        batch_op.drop_index(
            "ix_lease_expiry",
            sqlite_where=sa.text("state IN ('held', 'stopping')"),
            postgresql_where=sa.text("state IN ('held', 'stopping')"),
        )
        batch_op.drop_index("ix_lease_claim")

    op.drop_table("lease")
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_index("ix_job_control")
        batch_op.drop_index("ix_job_claim")

    op.drop_table("job")
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.drop_index("ix_batch_org")
        batch_op.drop_index("ix_batch_order")
        batch_op.drop_index(batch_op.f("ix_batch_input_file_id"))
        batch_op.drop_index("ix_batch_due")
        batch_op.drop_index("ix_batch_create")

    op.drop_table("batch")
    with op.batch_alter_table("file", schema=None) as batch_op:
        batch_op.drop_index("ix_file_org")
        batch_op.drop_index(batch_op.f("ix_file_expires_at"))
        batch_op.drop_index(batch_op.f("ix_file_blob_key"))

    op.drop_table("file")
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.drop_index("ix_worker_seen")
        batch_op.drop_index("ix_worker_pool")

    op.drop_table("worker")
    op.drop_table("pool")
    with op.batch_alter_table("blob", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_blob_unreferenced_at"))

    op.drop_table("blob")
    with op.batch_alter_table("api_token", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_token_org_id"))

    op.drop_table("api_token")
    op.drop_table("sweep_state")
    op.drop_table("presence_tick")
    op.drop_table("org")
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.drop_index("ix_event_subject")
        batch_op.drop_index("ix_event_org")
        batch_op.drop_index(batch_op.f("ix_event_at"))

    op.drop_table("event")
