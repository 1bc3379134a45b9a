"""Stored contents: what they are, and what a user is told of one that is not what was written."""

from enum import StrEnum


class ContentKind(StrEnum):
    """What a content is to its batch."""

    INPUT = "input"
    SEGMENT = "segment"
    RESULT = "result"


WAY_OUT = {
    ContentKind.INPUT: "Upload the file again and create the batch again.",
    ContentKind.SEGMENT: "Run the rows again in a new batch.",
    ContentKind.RESULT: "Run the rows again in a new batch, or ask the operator to restore the file from a backup.",
}


def damaged_file(file_id: str, kind: ContentKind, what: str) -> str:
    """Say of a file that it cannot be read as it was written, and what to do."""
    return f"The file '{file_id}' is damaged on the server: {what}. {WAY_OUT[kind]}"
