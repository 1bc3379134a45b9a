"""Stored contents: what they are, and what a user is told of one that is not what was written."""

from enum import StrEnum


class ContentKind(StrEnum):
    """What a content is to its batch."""

    INPUT = "input"
    SEGMENT = "segment"
    RESULT = "result"


_USERS = {
    ContentKind.INPUT: "Upload the file again and create the batch again.",
    ContentKind.SEGMENT: "Run the rows again in a new batch.",
    ContentKind.RESULT: "Run the rows again in a new batch, or ask the operator to restore the file from a backup and "
    "to run `gpuyard doctor --contents`, after which it can be downloaded again.",
}
_OPERATORS = {
    ContentKind.INPUT: "its owner uploads the file again, and creates the batch again if it has not ended",
    ContentKind.SEGMENT: "these rows fail when the batch ends, and its owner runs them again (gpuyard batch retry)",
    ContentKind.RESULT: "its owner runs the rows again (gpuyard batch retry --all). Until retention deletes them the "
    "answers are also among the stored rows: docs/operate/retention.md says how to read those",
}


def for_operators(kind: ContentKind, place: str, *, batch_has_ended: bool = False) -> str:
    """Say what helps where a content is damaged or gone. `place` is its path in the data folder."""
    if kind is ContentKind.SEGMENT and batch_has_ended:
        return "nothing, as long as the batch's result files are whole: they hold the same answers"
    return f"restore {place} of the data folder from a backup and run this again. Without a backup: {_OPERATORS[kind]}"


def damaged_file(file_id: str, kind: ContentKind, what: str) -> str:
    """Say of a file that it cannot be read as it was written, and what to do."""
    return f"The file '{file_id}' is damaged on the server: {what}. {_USERS[kind]}"
