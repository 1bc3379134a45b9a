"""A batch's lines in input order: what its segments hold, and a line for every row that never ran to an end."""

from collections.abc import Iterator

from app.db import jobs as jobs_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Segment
from app.services.context import Yard
from app.services.shard_lines import Findings, ResultLines, ShardLines

PAGE = 100


def result_lines(yard: Yard, batch: Batch, findings: Findings) -> Iterator[ResultLines]:
    """Give exactly one line a row, each file's in input order, of a batch that has no work out any more (B-11).

    Raises BlobMissing, unless `findings` lets what is missing cost its rows, and BlobUnavailable.
    """
    with yard.store.read() as session:
        source = input_blob(session, batch.id)
    for job, segments in _shards(yard, batch):
        yield from ShardLines(yard, batch, job, segments, source, findings).read()


def _shards(yard: Yard, batch: Batch) -> Iterator[tuple[Job, list[Segment]]]:
    after = -1
    while True:
        with yard.store.read() as session:
            jobs = jobs_sql.shards(session, batch.id, after=after, limit=PAGE)
            segments = segments_sql.of_jobs(session, [job.id or 0 for job in jobs])
        for job in jobs:
            yield job, segments.get(job.id or 0, [])
        if len(jobs) < PAGE:
            return
        after = jobs[-1].number
