"""Bells for control workers. The message says that there may be work; what to do is claimed from the database."""

from app.celery_control import app
from app.control import current
from tasks.messages import one_id


@app.task(name="run_control", shared=False, typing=False)
def run_control(*args: object, **kwargs: object) -> None:
    """Look for control work."""
    if one_id("run_control", args, kwargs):
        current.agent().wake()
