"""Celery's configuration, the same for every process, so that the plain `celery -A app …` does the right thing.

What depends on settings (broker, threads, schedule) is added by the two app files. Reasons are facts that were
measured on Celery 5.7; the task tests in tests/broker hold them.
"""

from typing import Any, Final

from kombu import Exchange, Queue

from config.queues import DEAD

# A job on a GPU machine is a subprocess or HTTP calls: no fork after CUDA started, no daemonic children.
worker_pool: Final = "threads"
# Celery's own dies of a forged message.
worker_consumer: Final = "app.celery_consumer:SturdyConsumer"
worker_prefetch_multiplier: Final = 1
# A busy worker leaves the next message in the queue, for an idle one.
worker_disable_prefetch: Final = True
# Flower's source; and with threads, early acks and events off, nothing wakes a worker when a task ends: 0.95 s idle.
worker_send_task_events: Final = True
task_send_sent_event: Final = False

# A message is a doorbell, the truth is the lease: a second delivery has no use, and late acks are not
# at-least-once on Redis anyway.
task_acks_late: Final = False
task_reject_on_worker_lost: Final = None
task_ignore_result: Final = True
# It is of tasks acknowledged late, and we have none; False is the same, with a warning at each lost connection.
worker_cancel_long_running_tasks_on_connection_loss: Final = True
worker_enable_prefetch_count_reduction: Final = False

broker_connection_retry_on_startup: Final = True
broker_connection_retry: Final = True
# The default of 100 ends a worker after 46 minutes of outage.
broker_connection_max_retries: Final = None
# A broker that is full or read-only for a while must not end the worker.
broker_channel_error_retry: Final = True
broker_pool_limit: Final = 10
task_publish_retry_policy: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}

# A task nobody routed, or a worker started without -Q, meets a queue that nothing uses.
task_default_queue: Final = DEAD
task_create_missing_queues: Final = True


def own_queue(name: str) -> Queue:
    """Return a queue as Celery declares those that nobody listed."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


# All of these are consumed by a worker started without -Q: never add `control`.
task_queues: Final[tuple[Queue, ...]] = (own_queue(DEAD),)

task_serializer: Final = "json"
accept_content: Final = ["json"]
result_accept_content: Final = ["json"]
enable_utc: Final = True
timezone: Final = "UTC"

worker_enable_remote_control: Final = True
# The agent drains by itself: what Celery offers does not stop a thread.
worker_soft_shutdown_timeout: Final = 0
worker_hijack_root_logger: Final = False
worker_redirect_stdouts: Final = False

# In memory: every entry is a short interval, so nothing is worth a file that can break or that two beats could share.
beat_scheduler: Final = "app.celery_beat:TerseScheduler"
beat_enable_remote_control: Final = True

# A consumer waits longer than a publisher: its reads block on purpose.
CONSUMER_SOCKET_SECONDS: Final = 5
PUBLISHER_SOCKET_SECONDS: Final = 2


def transport_options(client_name: str, *, socket_seconds: float = CONSUMER_SOCKET_SECONDS) -> dict[str, Any]:
    """Options of a connection to the broker, all waits bounded.

    Without `socket_timeout` a publish to a frozen broker blocks for ever. A publish that failed may have rung.
    """
    return {
        "socket_timeout": socket_seconds,
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "retry_on_timeout": False,
        # Else kombu notes each message it takes under names that all consumers share, and puts an old note into the
        # queue that the note names, by a Lua script: with a stolen account one pool could ring every other by the hands
        # of the control plane. A bell that dies with its worker is rung again by a sweep.
        "ack_emulation": False,
        "queue_order_strategy": "priority",
        "client_name": client_name,
    }
