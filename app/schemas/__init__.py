"""Wire types (Pydantic) that the control side and the worker side share. Imports app.domain only."""
