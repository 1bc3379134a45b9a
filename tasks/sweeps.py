"""Beat's ticks. The pass itself runs on the control worker's own sweep thread."""

from app.celery_control import app
from app.control import current
from tasks.messages import one_id


@app.task(name="sweep", shared=False, typing=False)
def sweep(*args: object, **kwargs: object) -> None:
    """Say that it is time for the sweep of that name."""
    if name := one_id("sweep", args, kwargs):
        current.agent().sweep(name)
