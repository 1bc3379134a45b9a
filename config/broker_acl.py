"""What an account at the broker may do: one for each pool's workers, one for the control plane (DESIGN 11).

The table is what Celery 5.7 and kombu 5.7 were seen to send (MONITOR), and no more; tests/e2e/test_broker_accounts.py
runs both sides with it and expects an empty ACL LOG. It wants Redis 7 or Valkey: a pool's account listens to remote
control and may not send any, and only selectors tell these two apart.
"""

from dataclasses import dataclass

from config.queues import CONTROL, check_pool_name


@dataclass(frozen=True, slots=True)
class Grant:
    """Commands, and the keys and channels they may be about. `{queue}` and `{db}` stand for the account's own.

    A command that begins with `-` is taken away again. A key is a pattern with Redis' own prefix: `~` to read and
    write, `%R~` to read, `%W~` to write.
    """

    why: str
    commands: tuple[str, ...]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def rules(self, **names: object) -> tuple[str, ...]:
        """As ACL SETUSER wants them."""
        return tuple(
            [command if command.startswith("-") else f"+{command}" for command in self.commands]
            + [pattern.format(**names) for pattern in self.keys]
            + [f"&{pattern.format(**names)}" for pattern in self.channels]
        )


# `client` whole, for Redis 7.0 refuses a line that names `client|setinfo`, which is younger and which redis-py sends;
# what of it concerns others is dangerous by Redis' own word, but for the one that tells which keys change.
_CONNECTION = ("hello", "ping", "client", "-@dangerous", "-client|tracking", "multi", "exec", "discard")

# No name of a pool holds what stands between the brackets, so `gpu` has `gpu.runs` and the four lists of kombu's
# priorities (`gpu`, `gpu\x06\x163`, ...) and nothing of a pool `gpu2` or `gpu-big`.
_OWN = ("{queue}", "{queue}[^-a-z0-9]*")

POOL: tuple[Grant, ...] = (
    Grant("a connection", _CONNECTION),
    Grant(
        "take from the pool's own queues, and put back what was not begun",
        ("brpop", "lpush", "llen", "del"),
        tuple(f"~{own}" for own in _OWN),
    ),
    Grant(
        "declare them",
        ("sadd", "srem", "smembers"),
        tuple(f"~_kombu.{table}.{own}" for table in ("binding", "binding_permanent") for own in _OWN),
    ),
    Grant("hear remote control", ("psubscribe", "punsubscribe"), channels=("/{db}.celery.pidbox",)),
    Grant(
        "have a node name there",
        ("sadd", "srem"),
        ("%W~_kombu.binding.celery.pidbox", "%W~_kombu.binding_permanent.celery.pidbox"),
    ),
    # No list lies there, for remote control is published. The `@` keeps the queues of replies out.
    Grant("and clear its queue", ("llen", "del"), ("~*@*.celery.pidbox*",)),
    Grant("see where an answer goes", ("smembers",), ("%R~_kombu.binding.reply.celery.pidbox",)),
    Grant("and send it", ("lpush",), ("%W~*.reply.celery.pidbox",)),
    Grant("tell Flower", ("publish",), channels=("/{db}.celeryev/worker.*", "/{db}.celeryev/task.*")),
)
"""A pool's GPU workers."""

CONTROL_PLANE: tuple[Grant, ...] = (
    Grant("a connection; who else is connected (`gpuyard doctor`)", (*_CONNECTION, "client|list")),
    # Any pool's queue: pools come and go.
    Grant(
        "ring, take control work, ask workers",
        ("brpop", "lpush", "llen", "del", "pexpire", "exists", "sadd", "srem", "smembers"),
        ("~*",),
    ),
    # kombu lets queues for replies expire by two scripts of its own; a script may do what its caller may.
    Grant(
        "let queues for replies expire",
        ("evalsha", "script|load", "script|exists", "time", "sadd", "zadd", "zrem", "zrangebyscore", "exists", "del"),
        ("~_kombu.binding*",),
    ),
    Grant(
        "remote control and events, both ways",
        ("publish", "psubscribe", "punsubscribe"),
        channels=("/{db}.celery.pidbox", "/{db}.celeryev/*"),
    ),
)
"""API, control workers, beat, Flower and `celery inspect`."""


def user_of(queue: str) -> str:
    """The account's name: `gpuyard-gpu`; the control plane's is `gpuyard-control`."""
    return f"gpuyard-{queue}"


def rules_of(queue: str, *, db: int = 0) -> tuple[str, ...]:
    """What ACL SETUSER takes after the name, without a password: the account has these rights and no other.

    `queue` is a pool's name or `control`. Raises ValueError when it is neither.
    """
    table = CONTROL_PLANE if queue == CONTROL else POOL
    if queue != CONTROL:
        check_pool_name(queue)
    first, *others = (grant.rules(queue=queue, db=db) for grant in table)
    select = ("+select",) if db else ()
    return ("on", *select, *first, *(f"({' '.join(rules)})" for rules in others))


def line_of(queue: str, password_hashes: tuple[str, ...], *, db: int = 0) -> str:
    """A line for a server's ACL file, or for its configuration. Hashes are SHA-256, in hexadecimal digits."""
    passwords = [f"#{digest}" for digest in password_hashes]
    return " ".join(["user", user_of(queue), "reset", *passwords, *rules_of(queue, db=db)])
