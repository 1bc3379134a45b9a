"""What a real broker lets the account of a pool do, and what it refuses: whoever steals one can ring its own pool."""

from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from tests.secured_broker import SecuredBroker, secured_broker

OTHERS = ("control", "gpu2", "gpu-big", "big", "gpuyard-dead")
REPLY = "0a1b2c3d-0000-3000-8000-000000000000.reply.celery.pidbox"
EVENT = "/0.celeryev/worker.heartbeat"

OWN = [
    "BRPOP gpu gpu\x06\x163 gpu\x06\x166 gpu\x06\x169 0.01",
    "LPUSH gpu bell",
    "LPUSH gpu.runs bell",
    "LLEN gpu",
    "SADD _kombu.binding.gpu member",
    "SADD _kombu.binding_permanent.celery.pidbox member",
    "SREM _kombu.binding.celery.pidbox member",
    "DEL w1@host.celery.pidbox",
    "SMEMBERS _kombu.binding.reply.celery.pidbox",
    f"LPUSH {REPLY} answer",
    f"PUBLISH {EVENT} beat",
    "PUBLISH /0.celeryev/task.multi events",
]
REFUSED = [
    *(command.format(queue) for queue in OTHERS for command in ("LPUSH {} bell", "BRPOP {} 0.01", "DEL {}", "LLEN {}")),
    *(f"SADD _kombu.binding.{queue} member" for queue in OTHERS),
    "BRPOP gpu control 0.01",
    # all of the broker
    "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET maxmemory 1", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "INFO",
    "EVAL return(1) 0", "EVALSHA 9a2b966a0a2d2d0e36ec32bc30fc89342b94a4bf 0", "SCRIPT LOAD return(1)", "SCRIPT FLUSH",
    "FUNCTION LIST", "ACL WHOAMI", "ACL LIST", "ACL SETUSER gpuyard-gpu allkeys", "CLIENT LIST",
    "CLIENT KILL TYPE normal", "CLIENT TRACKING ON BCAST", "CLIENT UNBLOCK 1", "CLIENT NO-EVICT on", "CLIENT UNPAUSE",
    "CLIENT PAUSE 1", "MONITOR", "SHUTDOWN", "SAVE", "BGREWRITEAOF", "SLAVEOF NO ONE", "MODULE LIST",
    "SWAPDB 0 1", "SELECT 1", "OBJECT HELP", "MEMORY STATS", "SLOWLOG GET", "LATENCY RESET",
    # its own keys, by what Celery never sends
    "GET gpu", "SET gpu x", "EXPIRE gpu 1", "RENAME gpu big", "COPY gpu big", "RPOPLPUSH gpu control",
    "LMOVE gpu control LEFT LEFT", "SORT gpu STORE control", "MIGRATE 127.0.0.1 1 gpu 0 1", "DUMP gpu",
    # kombu's and other people's
    "DEL _kombu.binding.celery.pidbox", "SMEMBERS _kombu.binding.celery.pidbox",
    "DEL _kombu.binding.reply.celery.pidbox", "SADD _kombu.binding.reply.celery.pidbox member",
    f"BRPOP {REPLY} 0.01", f"DEL {REPLY}", f"LLEN {REPLY}",
    "HSET unacked tag message", "HGETALL unacked", "LPUSH unacked x", "ZADD unacked_index 0 tag", "LPUSH celeryev.x e",
    # remote control of others, events of others
    "PUBLISH /0.celery.pidbox shutdown", "PUBLISH /1.celery.pidbox shutdown", "PUBLISH /0.celeryev/other x",
    "PUBLISH anything x", "SPUBLISH anything x",
    "SUBSCRIBE /0.celeryev/worker.heartbeat", "PSUBSCRIBE /0.celeryev/*", "PSUBSCRIBE *", "PSUBSCRIBE /0.*",
    "PSUBSCRIBE /1.celery.pidbox", "SUBSCRIBE gpu", "PUBSUB CHANNELS",
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("acl"), "gpu", "gpu2", "big") as found:
        yield found


@pytest.fixture(scope="module")
def stolen(broker: SecuredBroker) -> Iterator[Redis]:
    """A client with the account of the pool `gpu`, and a mind of its own."""
    with Redis.from_url(broker.url("gpu"), protocol=3) as client:
        yield client


@pytest.mark.parametrize("command", OWN)
def test_a_pools_account_may(stolen: Redis, command: str) -> None:
    stolen.execute_command(*command.split())


def test_a_pools_account_may_listen_to_remote_control(stolen: Redis) -> None:
    with stolen.pubsub() as listener:
        listener.psubscribe("/0.celery.pidbox")
        answer = listener.get_message(timeout=10)
    assert answer is not None
    assert answer["type"] == "psubscribe"


@pytest.mark.parametrize("command", REFUSED)
def test_a_pools_account_may_not(broker: SecuredBroker, command: str) -> None:
    with Redis.from_url(broker.url("gpu")) as stolen, pytest.raises(NoPermissionError):
        stolen.execute_command(*command.split())


def test_a_refused_command_inside_a_transaction_undoes_all_of_it(broker: SecuredBroker, stolen: Redis) -> None:
    with stolen.pipeline() as pipe, pytest.raises(NoPermissionError):
        pipe.lpush("gpu.tried", "x").lpush("control", "x").execute()
    with broker.admin() as admin:
        assert (admin.llen("gpu.tried"), admin.llen("control")) == (0, 0)


@pytest.mark.parametrize("command", ["FLUSHALL", "KEYS *", "CONFIG GET *", "EVAL return(1) 0", "ACL LIST", "SHUTDOWN"])
def test_nor_may_the_control_planes(broker: SecuredBroker, command: str) -> None:
    with Redis.from_url(broker.url("control")) as client, pytest.raises(NoPermissionError):
        client.execute_command(*command.split())


def test_nobody_gets_in_without_a_password(broker: SecuredBroker) -> None:
    for client in (Redis(port=broker.port), Redis(port=broker.port, username="gpuyard-gpu", password="guessed")):  # noqa: S106 - wrong
        with client, pytest.raises(AuthenticationError):
            client.ping()


def test_accounts_of_another_database_have_its_channels_and_reach_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        secured_broker(tmp_path_factory.mktemp("db"), "gpu", db=2) as broker,
        Redis.from_url(broker.url("gpu")) as client,
    ):
        client.lpush("gpu", "bell")
        client.publish("/2.celeryev/task.multi", "events")
        with pytest.raises(NoPermissionError):
            client.publish("/0.celeryev/task.multi", "events")
        with broker.admin() as admin:
            assert admin.llen("gpu") == 1
