"""Workers that die with a shard, as often as a test wants, and what the others are given then."""

from collections.abc import Sequence

from sqlalchemy import update

from app.db.tables import Job
from app.schemas.claims import Grant
from app.services import claims
from app.services.context import Yard
from tests.yards import Machine, worker


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


def has_work(yard: Yard, one: Machine) -> bool:
    """Whether an answer to this worker would say that there is work."""
    with yard.store.read() as session:
        return claims.has_work(session, yard, worker(yard, one.id), yard.store.now(session))


def no_of(one: Machine, running: str | None = None) -> str | None:
    """Claim in vain, and give the reason."""
    answer = one.claim(running=running)
    assert answer.grants == []
    return answer.no


def numbers(found: Sequence[Grant]) -> list[int]:
    """Which shards were granted."""
    return [grant.number for grant in found]
