"""Tasks of GPU workers."""

from app.celery import app
from app.worker import current
from tasks.messages import one_id


@app.task(name="run_batch", shared=False, typing=False)
def run_batch(*args: object, **kwargs: object) -> None:
    """This worker's share of a batch; the message is a bell, what to do is asked of the control plane."""
    if batch_id := one_id("run_batch", args, kwargs):
        current.agent().run_batch(batch_id)
