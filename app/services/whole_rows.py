"""One row that is asked for has to be readable; of many that are listed, what cannot be read is shown as empty."""

from sqlmodel import SQLModel

from app.db.tables import unreadable_in
from app.domain.errors import Unreadable


def check_whole(row: SQLModel, name: str) -> None:
    """Raise Unreadable, which names the columns, where something stored of the row `name` cannot be read."""
    if columns := unreadable_in(row):
        refuse(columns, name)


def refuse(columns: list[str], name: str) -> None:
    """Raise Unreadable for these columns of the row `name`."""
    many = len(columns) > 1
    raise Unreadable(
        f"what is stored of {name} cannot be read: the database's column{'s' if many else ''} {', '.join(columns)} "
        f"{'hold' if many else 'holds'} no JSON of the right kind. An operator repairs the row, or restores a backup",
        code="row_unreadable",
    )
