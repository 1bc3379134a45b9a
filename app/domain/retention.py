"""What is kept of a batch after its end, and what goes first (decision 60)."""

from enum import StrEnum


class Kept(StrEnum):
    """What there still is of a batch that has ended, besides its own row and its files."""

    ROWS = "rows"
    """All of it: the segments that its files were written from, its jobs, their leases."""
    DAMAGED = "damaged"
    """All of it as well, because a file of it is not what was written: nothing goes before the batch does."""
    JOBS = "jobs"
    """Jobs and leases."""
    BATCH = "batch"
    """Nothing else, but for what webhook endpoints were told."""
