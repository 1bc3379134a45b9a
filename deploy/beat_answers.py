"""The health check of beat's container, which has no port: exit 0 when beat answers a ping over the broker.

It does so only while its schedule ticks. Celery alone is imported, and nothing of ours: this runs every few seconds.
"""

import os
import platform
import sys

from celery import Celery
from kombu.exceptions import OperationalError

SECONDS = 4


def main() -> int:
    """Ask the beat of this container."""
    asking = Celery("asking", broker=os.environ["GPUYARD_BROKER_URL"])
    node = f"celerybeat@{platform.node()}"
    try:
        answers = asking.control.ping(destination=[node], timeout=SECONDS)
    except (OSError, OperationalError) as error:
        print(f"the broker: {error}")
        return 1
    if not answers:
        print(f"{node} does not answer")
    return 0 if answers else 1


if __name__ == "__main__":
    sys.exit(main())
