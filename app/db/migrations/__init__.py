"""The schema's history (Alembic). Run by `gpuyard migrate` through app.db.schema."""
