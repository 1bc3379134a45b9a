"""Files on OpenAI's wire (OPENAI_CONTRACT 1.8). Times in Unix seconds."""

from typing import Literal

from app.schemas.wire import Wire

UPLOAD_PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
MIN_EXPIRY_SECONDS = 3600
MAX_EXPIRY_SECONDS = 2_592_000


class FileObject(Wire):
    """A file. Its status is `processed` from the start: clients poll until it is."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    status_details: str | None = None


class FileDeleted(Wire):
    """The answer to a delete."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True
