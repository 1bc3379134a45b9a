"""Workers that die with a shard, as often as a test wants."""

from sqlalchemy import update

from app.db.tables import Job
from app.schemas.claims import Grant
from tests.yards import Machine


def lost(one: Machine, times: int = 3) -> Machine:
    """Have a worker die with one shard so often, always the same; gives it as it is started again."""
    for _ in range(times):
        with one.yard.store.begin() as session:
            session.execute(update(Job).values(last_worker_id=None))  # or it would get another one the next time
        assert len(one.claim(want=1).grants) == 1
        one = one.dies()
    return one


def only(one: Machine, **asked: int) -> Grant:
    """Claim, and give the one grant of the answer."""
    (grant,) = one.claim(**asked).grants
    return grant
