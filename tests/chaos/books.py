"""What the database says while the run goes on, read beside the API, which may be away just then."""

from dataclasses import dataclass

from sqlmodel import col, select

from app.db.store import Store
from app.db.tables import Batch, File, Job, Segment
from app.domain.jobs import JobKind
from app.domain.rowsets import RowSet
from tests.e2e.submitted import ENDED


@dataclass(frozen=True)
class Standing:
    """A batch's state and its stored rows."""

    state: str
    stored: int

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Books:
    """Reads only."""

    def __init__(self, database_url: str) -> None:
        self._store = Store(database_url, pool_size=2)

    def close(self) -> None:
        self._store.close()

    def standing(self, batch_id: str) -> Standing:
        """How far the batch is."""
        with self._store.read() as session:
            state = session.exec(select(Batch.state).where(Batch.id == batch_id)).one()
            counts = session.exec(
                select(Job.completed, Job.failed).where(Job.batch_id == batch_id, Job.kind == JobKind.SHARD)
            ).all()
        return Standing(state, sum(completed + failed for completed, failed in counts))

    def stored_rows(self, batch_id: str) -> set[int]:
        """The numbers of the stored rows."""
        with self._store.read() as session:
            done = session.exec(
                select(Job.done_rows).where(col(Job.batch_id) == batch_id, Job.kind == JobKind.SHARD)
            ).all()
        return {row for text in done for row in RowSet.parse(text)}

    def hand_ins(self, batch_id: str) -> list[str]:
        """The contents of its hand-ins."""
        with self._store.read() as session:
            keys = session.exec(select(Segment.blob_key).where(Segment.batch_id == batch_id).order_by(col(Segment.id)))
            return list(dict.fromkeys(keys))

    def blob_of(self, file_id: str | None) -> str:
        """The content of a file."""
        with self._store.read() as session:
            return session.exec(select(File.blob_key).where(File.id == file_id)).one()

    def input_of(self, batch_id: str) -> str:
        """The content of its input."""
        return self.blob_of(self._batch(batch_id).input_file_id)

    def output_of(self, batch_id: str) -> str:
        """The content of its output file."""
        return self.blob_of(self._batch(batch_id).output_file_id)

    def _batch(self, batch_id: str) -> Batch:
        with self._store.read() as session:
            return session.exec(select(Batch).where(Batch.id == batch_id)).one()
