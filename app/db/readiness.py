"""What a readiness check asks of the database."""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from app.db.tables import SweepState


def sweeps(session: Session) -> Sequence[SweepState]:
    """Read when each sweep ran last."""
    return session.exec(select(SweepState).order_by(col(SweepState.name))).all()
